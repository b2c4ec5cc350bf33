"""A model server of NeMo Gym, which asks the policy at the address in a request's metadata, for
each episode has an address of its own."""

from nemo_gym.base_responses_api_model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymChatCompletion, NeMoGymResponse


class Policy(SimpleResponsesAPIModel):
    ray_enabled = False
    config: BaseResponsesAPIModelConfig

    async def responses(self, body):
        asked, client = addressed(body)
        return NeMoGymResponse.model_validate(await client.create_response(**asked))

    async def chat_completions(self, body):
        asked, client = addressed(body)
        return NeMoGymChatCompletion.model_validate(await client.create_chat_completion(**asked))


def addressed(body):
    """What the policy is asked, and a client of its address."""
    asked = body.model_dump(exclude_unset=True) | {"model": "policy"}
    address = (asked.pop("metadata", None) or {}).get("policy")
    if address is None:
        raise ValueError("the agent does not pass on metadata, which has the policy's address")
    return asked, NeMoGymAsyncOpenAI(base_url=address, api_key="none", max_http_attempts=1)


if __name__ == "__main__":
    Policy.run_webserver()
