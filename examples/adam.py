"""An optimizer of one's own: Adam on flat vectors (arXiv 1412.6980, Algorithm 1)."""

from dataclasses import dataclass

import torch

from edgesim.hardware.work import vector_work


@dataclass
class AdamState:
    m: torch.Tensor
    v: torch.Tensor
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class Adam:
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    kept: int = 2  # vectors between rounds: m and v
    kept_in_gossip: int = 0

    def init(self, x):
        return AdamState(torch.zeros_like(x), torch.zeros_like(x))

    def step_(self, state, x, g, gamma):
        state.steps += 1
        state.m.mul_(self.beta1).add_(g, alpha=1 - self.beta1)
        state.v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        m = state.m / (1 - self.beta1**state.steps)
        v = state.v / (1 - self.beta2**state.steps)
        x.sub_(gamma * m / (v.sqrt() + self.epsilon))

    def after_gossip_(self, state, x, u, gamma):
        pass  # learns nothing from gossip

    def work(self, num_trainable):
        # m: 3; v: 4; both divided: 2; root, sum, quotient, product, difference: 5.
        return vector_work(num_trainable, ops=14, passes=7)  # g, m, v, x read; m, v, x written
