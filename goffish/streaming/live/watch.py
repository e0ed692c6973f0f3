"""What other processes see of a flow while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from goffish.streaming.control import Control, Controlled
from goffish.streaming.topology import Topology

if TYPE_CHECKING:
    from goffish.streaming.live.page import Page


class Watch:
    """Lets other processes see and control a flow while it runs, through its socket and, if wanted, a page.

    Parameters
    ----------
    http : str, optional
        Loopback ``HOST:PORT`` of the page.
    load : callable, optional
        Reads another version of the flow from a file, so that other processes can update it.

    Raises
    ------
    InputError
        The address is not accepted, or an extra is missing.
    JobError
        The address is in use.
    """

    def __init__(self, http: str | None = None, load: Callable[[str], Topology] | None = None) -> None:
        self._load = load
        #: Address of the page.
        self.url: str | None = None
        self._page: Page | None = None
        self._control: Control | None = None
        self._flow: Controlled
        if http is not None:
            from goffish.streaming.live.page import Page

            self._page = Page(http)
            self.url = self._page.url

    def announce(self, flow: Controlled) -> None:
        """Let other processes see and control the flow, but for the page, also before it begins."""
        self._flow = flow
        flow.load = self._load
        if self._control is None:
            self._control = Control(flow)
        else:
            self._control.follow(flow)

    def attach(self, flow: Controlled) -> None:
        """Begin, as the flow does."""
        self.announce(flow)
        if self._page is not None:
            self._page.start(flow)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """End, as the flow does, with an error if it has failed."""
        if self._control is not None:
            if isinstance(error, KeyboardInterrupt):  # before the flow has begun
                self._control.close("interrupted")
            else:
                text = None if error is None else " ".join(str(error).split()) or type(error).__name__
                self._control.close(self._flow.metrics().stopped, text)
        if self._page is not None:
            self._page.close()
        self._control = self._page = None
