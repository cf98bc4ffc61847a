"""What else the machine did during a measurement: CPU time of other programs, and CPU time that a
hypervisor gave to other guests."""
import os
from pathlib import Path

LIMIT = 5  # percent of the machine's CPU time that a run may lose before its page says so
SPREAD = 10  # percent between the rounds of a figure before it is marked


def ticks():
    """Busy and stolen CPU seconds of the machine since it started; None where /proc has no such file."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split("\n", 1)[0].split()[1:9])
    second = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / second, steal / second


def own_seconds():
    """CPU seconds of this process and of the children that it waited for."""
    return sum(os.times()[:4])


class Watch:
    def __init__(self):
        self.start, self.own, self.clock = ticks(), own_seconds(), os.times().elapsed

    def finish(self):
        """Percent of the machine's CPU time that others took; {} where the system does not tell."""
        end = ticks()
        if self.start is None or end is None:
            return {}
        whole = max((os.times().elapsed - self.clock) * (os.cpu_count() or 1), 1e-9)
        busy, steal = end[0] - self.start[0], end[1] - self.start[1]
        others = busy - (own_seconds() - self.own)
        return {"others_percent": max(0.0, 100 * others / whole), "steal_percent": 100 * steal / whole}


def describe(found):
    """A line for the page, or None if nothing is known."""
    if not found:
        return None
    lost = f"other programs {found['others_percent']:.0f} %, other guests of the host {found['steal_percent']:.0f} %"
    if max(found.values()) > LIMIT:
        return f"**Disturbed:** during the run others took CPU time ({lost}). Measure again on an idle machine."
    return f"CPU time that others took during the run: {lost}."


def spread(seconds):
    """Percent by which the slowest round of a figure is above the fastest; None of a single round."""
    return 100 * (max(seconds) / min(seconds) - 1) if len(seconds) > 1 and min(seconds) > 0 else None


def mark(row):
    """"~" before a figure whose rounds differ by more than SPREAD percent."""
    return "~" if (row.get("spread_percent") or 0) > SPREAD else ""
