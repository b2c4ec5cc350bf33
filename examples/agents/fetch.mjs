// An agent in JavaScript, by fetch alone: node examples/agents/fetch.mjs

const task = JSON.parse(process.env.TURNWISE_TASK);
const tools = [{
  type: "function",
  function: {
    name: "search",
    description: "Look a person up.",
    parameters: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  },
}];
const messages = [{ role: "user", content: task.prompt }];

while (true) {
  const reply = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      authorization: `Bearer ${process.env.OPENAI_API_KEY}`,
    },
    body: JSON.stringify({ model: process.env.OPENAI_MODEL, messages, tools }),
  });
  if (!reply.ok) throw new Error(await reply.text());
  const message = (await reply.json()).choices[0].message;
  if (!message.tool_calls?.length) break;
  messages.push(message);
  for (const call of message.tool_calls) {
    const { name } = JSON.parse(call.function.arguments);
    const content = task.data.records[name.trim()] ?? "Nobody has this name.";
    messages.push({ role: "tool", tool_call_id: call.id, content });
  }
}
