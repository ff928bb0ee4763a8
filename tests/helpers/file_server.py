"""A server of files on this machine, which can go wrong as servers on the net do."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HTML = b"<!DOCTYPE html><html><body>Sign in to this network</body></html>"
FAULTS = ("cut", "chunk cut", "silent", "no network", "no content", "gzip", "no length")
UNANNOUNCED = "unannounced"  # the file is sent whole, without its size, which is no fault
TOO_LARGE = "too large"  # a size is announced that no disk has room for
LARGE = 1 << 50
SECONDS_OF_SILENCE = 5


class FileServer(ThreadingHTTPServer):
    """Serves `contents` by path, and remembers what was asked for.

    `fault` is one of `FAULTS`, or `UNANNOUNCED`, or `TOO_LARGE`.
    """

    daemon_threads = True

    def __init__(self, contents: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = contents
        self.fault = ""
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/elmo/"

    def stop(self) -> None:
        """Answers nothing any more."""
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.contents.get(self.path.partition("?")[0])
        if content is None:
            self.send_error(404)
            return
        fault = self.server.fault
        if fault == "gzip":
            content = gzip.compress(content)
        self.send_response(204 if fault == "no content" else 200)
        for name, value in self.headers_of(content, fault).items():
            self.send_header(name, value)
        self.end_headers()
        if fault == "no content":
            return
        if fault == "chunk cut":
            self.wfile.write(b"%x\r\n" % len(content))
        is_cut = fault in ("cut", "chunk cut", "silent")
        self.wfile.write(content[:-1] if is_cut else content)
        if fault == "silent":
            time.sleep(SECONDS_OF_SILENCE)

    def headers_of(self, content: bytes, fault: str) -> dict[str, str]:
        if fault == "chunk cut":
            return {"Transfer-Encoding": "chunked"}
        if fault in ("no content", UNANNOUNCED):
            return {}
        if fault == TOO_LARGE:
            return {"Content-Length": str(LARGE)}
        headers = {"Content-Length": "abc" if fault == "no length" else str(len(content))}
        if fault == "gzip":
            headers["Content-Encoding"] = "gzip"
        return headers

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(contents: dict[str, bytes]) -> Iterator[FileServer]:
    """A server that runs while the block does."""
    with FileServer(contents) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
    thread.join()
