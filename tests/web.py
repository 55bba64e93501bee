"""Files at addresses on loopback, and the ways in which their transfer can fail."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web(ThreadingHTTPServer):
    """What it serves, how it fails, and what it was asked: path and headers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files: dict[str, bytes] = {}
        self.cut: dict[str, int] = {}
        """Bytes after which the first transfer of a file ends."""
        self.hold = threading.Event()
        self.held: set[str] = set()
        """Files whose second half waits for `hold`."""
        self.asked: list[tuple[str, dict[str, str]]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        web = self.server
        assert isinstance(web, Web)
        web.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        content = web.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        begin = int(self.headers.get("Range", "bytes=0-")[6:].rstrip("-"))
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.send_header("ETag", '"one"')
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        try:
            if self.path in web.held:
                self.wfile.write(content[: len(content) // 2])
                self.wfile.flush()
                web.hold.wait(120)
                self.wfile.write(content[len(content) // 2 :])
                return
            self.wfile.write(content[begin : web.cut.pop(self.path, len(content))])
        except OSError:
            return  # whoever asked was killed

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        return


@contextmanager
def serving() -> Generator[Web]:
    """While the block runs."""
    with Web() as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield served
        finally:
            served.hold.set()
            served.shutdown()
            thread.join()
