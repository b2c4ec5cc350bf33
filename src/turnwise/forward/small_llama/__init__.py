"""Small models of the shapes of Llama and Qwen3, computed without their own layers.

In a small model most of a pass is not arithmetic but dispatch, and activations that are read and
written between operations. `weights.py` describes such a layer and which models have it; prefills,
decode steps, passes in bfloat16 tiles and training passes are a file each, for each keeps something
else. Not here: C (`kernels`), and which pass a model gets (`runner.py`, `hidden.py`).
"""
