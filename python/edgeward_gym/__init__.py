"""The gym of edgeward-lab as Gymnasium environments: `edgeward/Placement-v0`, single and vectorised.

Keyword arguments are the fields of `edgeward-lab train --env`, with `_` for `-`: clusters, mode, observation, reward,
distinct_padding, scaled. Seeds, defaults and errors are those of edgeward-lab. A cluster without room, which `action_mask`
forbids, rejects the request.
"""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ._gym import Gyms

__all__ = ["PlacementEnv", "PlacementVectorEnv"]


def _spaces(gyms):
    low, high = gyms.RANGE
    return gymnasium.spaces.Box(low, high, gyms.shape, np.float32), gymnasium.spaces.Discrete(gyms.shape[0])


def _observations(gyms):
    return np.frombuffer(gyms.observe(), np.float32).reshape(-1, *gyms.shape)


def _masks(gyms):
    return np.frombuffer(gyms.masks(), np.int8).reshape(-1, gyms.shape[0])


def _refuse(options):
    if options:
        raise ValueError(f"options: {options}: the environment has none")


class PlacementEnv(gymnasium.Env):
    """One environment. An episode is terminated after 100 requests."""

    metadata = {"render_modes": []}

    def __init__(self, **settings):
        self._gyms = Gyms(1, **settings)
        self.observation_space, self.action_space = _spaces(self._gyms)

    def reset(self, *, seed=None, options=None):
        _refuse(options)
        super().reset(seed=seed)
        if seed is None and self._gyms.is_seeded:
            self._gyms.reset_all()
        else:
            self._gyms.seed([self.np_random_seed % 2**64])
        return _observations(self._gyms)[0], self._info()

    def step(self, action):
        [reward], [figures] = self._gyms.step([action])
        return _observations(self._gyms)[0], reward, figures is not None, False, self._info() | (figures or {})

    def _info(self):
        return {"action_mask": _masks(self._gyms)[0]}

    def action_masks(self):
        """The allowed actions, as sb3-contrib asks for them."""
        return _masks(self._gyms)[0].view(bool)


class PlacementVectorEnv(gymnasium.vector.VectorEnv):
    """Several environments. An environment whose episode ends is reset in the same step."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs=1, **settings):
        self._gyms = Gyms(num_envs, **settings)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = _spaces(self._gyms)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        """Begins an episode in each environment. With a number, environment i has the seed `seed + i`; a list has one for each."""
        _refuse(options)
        if seed is None and self._gyms.is_seeded:
            self._gyms.reset_all()
        else:
            first = self.np_random_seed % 2**63 if seed is None else seed
            self._gyms.seed(first if np.iterable(first) else range(first, first + self.num_envs))
        return _observations(self._gyms), self._info({})

    def step(self, actions):
        rewards, figures = self._gyms.step(np.asarray(actions).tolist())
        ended = np.array([one is not None for one in figures])
        infos = {}
        if ended.any():
            observations, masks = _observations(self._gyms), _masks(self._gyms)
            for i in np.flatnonzero(ended):
                info = {"action_mask": masks[i], **figures[i]}
                infos = self._add_info(infos, {"final_obs": observations[i], "final_info": info}, i)
            self._gyms.reset()
        return _observations(self._gyms), np.array(rewards), ended, np.zeros_like(ended), self._info(infos)

    def _info(self, infos):
        return infos | {"action_mask": _masks(self._gyms), "_action_mask": np.ones(self.num_envs, bool)}


gymnasium.register("edgeward/Placement-v0", PlacementEnv, vector_entry_point=PlacementVectorEnv)
