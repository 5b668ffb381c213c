"""Trains MaskablePPO of sb3-contrib, with the hyper-parameters of `edgeward-lab train --algo mlp-maskable-ppo`.

Prints the means over 100 episodes of seed 42 before and after, played as `evaluate --protocol two-resets` does.
"""

import argparse
import time

import edgeward_gym
import numpy as np
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--reward", default="cost", choices=["cost", "latency"])
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--steps", type=int, default=200_000)
arguments = parser.parse_args()
settings = {"reward": arguments.reward, "observation": "fresh", "distinct_padding": True, "scaled": True}


def evaluate(model):
    environment = edgeward_gym.PlacementEnv(**settings)
    observation, _ = environment.reset(seed=42)
    episodes, total = [], 0
    while len(episodes) < 100:
        action, _ = model.predict(observation, action_masks=environment.action_masks(), deterministic=True)
        observation, reward, ended, _, info = environment.step(action)
        total += reward
        if ended:
            episodes.append([total, info["rejected_percent"], info["cost"], info["latency_ms"]])
            environment.reset()
            observation, _ = environment.reset()
            total = 0
    reward, rejected, cost, latency = np.nanmean(episodes, 0)
    return f"reward {reward:.2f}, rejected {rejected:.2f} %, cost {cost:.2f}, latency {latency:.2f} ms"


# The seeds that edgeward-lab gives its eight environments.
environments = make_vec_env(
    edgeward_gym.PlacementEnv, n_envs=8, seed=(arguments.seed + 1) * 1_000_000, env_kwargs=settings
)
model = MaskablePPO("MlpPolicy", environments, gamma=0.95, seed=arguments.seed, device="cpu")
print("before:", evaluate(model), flush=True)
began = time.process_time()
model.learn(arguments.steps)
print(f"trained for {time.process_time() - began:.0f} s of CPU time")
print("after: ", evaluate(model))
