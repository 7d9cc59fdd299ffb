"""Shows the expected time and the progress of an evaluation of many models."""

from __future__ import annotations

from time import monotonic

from rich.console import Console

from edgesim.fleet.recording.view import say

LINE_INTERVAL_S = 30.0  # between lines where the output is no terminal
SHORT_S = 5.0  # an evaluation that takes less needs no estimate


class EvaluationProgress:
    """Follows evaluations, one after the other.

    Args:
        console: where it is said.
        num_devices: of the fleet.
        num_samples: that each model is evaluated on.
        noun: what samples are called.
        gossip_rounds: of further gossip, after which devices' models are evaluated once more.
    """

    def __init__(
        self,
        console: Console,
        num_devices: int,
        num_samples: int,
        noun: str = "images",
        gossip_rounds: int = 0,
    ) -> None:
        self._console = console
        self._num_devices = num_devices
        self._num_samples = num_samples
        self._noun = noun
        self._gossip_rounds = gossip_rounds
        self._start_s = self._next_line_s = 0.0
        self._is_estimated = False
        self._announced = ""

    def text(self, done: int, total: int) -> str:
        """Words for a line of progress; empty where a single model is evaluated.

        Prints, before the first evaluation, how many models there are; once some are done, how long
        the others will take; and from then on a line now and then where the output is no terminal.

        Args:
            done: models that have been evaluated.
            total: all models of this evaluation, that of the fleet's average among them.
        """
        if total <= 1:
            return ""
        now_s = monotonic()
        if done == 0:
            self._start_s, self._next_line_s = now_s, now_s + LINE_INTERVAL_S
            self._is_estimated = False
            num_devices, once_more = total - 1, ""
            if self._gossip_rounds:
                num_devices //= 2
                once_more = f", and once more after {self._gossip_rounds:,} rounds of gossip"
            devices, all_devices = f"{num_devices:,}", f"{self._num_devices:,}"
            of_all = "" if devices == all_devices else f" of {all_devices}"
            text = (
                f"evaluating the averaged model and those of {devices}{of_all} devices on "
                f"{self._num_samples:,} {self._noun} each{once_more}"
            )
            if text != self._announced:  # once for all evaluations of these models
                self._announced = text
                say(self._console, text)
            return f"evaluated 0/{total} models"
        left_s = (now_s - self._start_s) / done * (total - done)
        state = f"evaluated {done}/{total} models, about {left_s:.0f} s left"
        if done == total:
            return ""
        is_due = not self._console.is_terminal and now_s >= self._next_line_s
        if is_due or (not self._is_estimated and left_s >= SHORT_S):
            self._is_estimated = True
            self._next_line_s = now_s + LINE_INTERVAL_S
            say(self._console, state)
        return state
