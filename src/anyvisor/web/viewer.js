// The serial console or the display of one machine; comes back by itself while it is open.

import { PROTOCOLS, streamUrl } from "./api.js";

const FIRST_WAIT = 500;
const LAST_WAIT = 8000;
const TAKEN = 1001;

export class Viewer {
  constructor(parts) {
    this.parts = parts;
    this.session = null;
  }

  async open(machine, kind) {
    this.close();
    const { section, title, screen, keys } = this.parts;
    const session = (this.session = { machine, kind, wait: FIRST_WAIT, closed: false, end: () => {} });
    section.hidden = false;
    section.dataset.kind = kind;
    title.textContent = `${kind === "vnc" ? "Display" : "Console"} of ${machine.name}`;
    keys.hidden = kind !== "vnc";
    screen.replaceChildren();
    section.scrollIntoView({ block: "nearest" });
    try {
      await (kind === "vnc" ? display(this, session) : serial(this, session));
    } catch {
      this.say("The terminal and the viewer are not installed on the server: run `make web` there.");
    }
  }

  say(text) {
    this.parts.state.textContent = text;
    this.parts.section.dataset.state = text;
  }

  again(session, why, connect) {
    if (session.closed) return;
    this.say(`${why} Connecting again …`);
    session.timer = setTimeout(() => session.closed || connect(), session.wait);
    session.wait = Math.min(session.wait * 2, LAST_WAIT);
  }

  close() {
    const session = this.session;
    if (session === null) return;
    this.session = null;
    session.closed = true;
    clearTimeout(session.timer);
    session.end();
    this.parts.section.hidden = true;
    this.parts.screen.replaceChildren();
  }
}

async function serial(viewer, session) {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import("./vendor/xterm.mjs"), import("./vendor/addon-fit.mjs")]);
  if (session.closed) return;
  const terminal = new Terminal({ cursorBlink: true, scrollback: 5000, fontSize: 14, theme: { background: "#0d0f14" },
    fontFamily: 'ui-monospace, "DejaVu Sans Mono", monospace' });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(viewer.parts.screen);
  const sizes = new ResizeObserver(() => fit.fit());
  sizes.observe(viewer.parts.screen);
  const encoder = new TextEncoder();
  let socket = null;
  terminal.onData((text) => socket?.readyState === WebSocket.OPEN && socket.send(encoder.encode(text)));
  viewer.terminal = terminal;
  const connect = () => {
    viewer.say("Connecting …");
    socket = new WebSocket(streamUrl(session.machine, "console"), PROTOCOLS);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      terminal.reset(); // what came last is sent again
      session.wait = FIRST_WAIT;
      viewer.say("Connected");
    };
    socket.onmessage = ({ data }) => terminal.write(typeof data === "string" ? data : new Uint8Array(data));
    socket.onclose = ({ code, reason }) => {
      if (code === TAKEN && reason.includes("another client")) viewer.say("Another client opened this console.");
      else viewer.again(session, "The console is not there.", connect);
    };
  };
  session.end = () => {
    sizes.disconnect();
    socket?.close();
    terminal.dispose();
  };
  connect();
  terminal.focus();
}

async function display(viewer, session) {
  const { default: RFB } = await import("./vendor/novnc/core/rfb.js");
  if (session.closed) return;
  let rfb = null;
  const connect = () => {
    viewer.say("Connecting …");
    viewer.parts.screen.replaceChildren();
    rfb = new RFB(viewer.parts.screen, streamUrl(session.machine, "vnc"), { wsProtocols: PROTOCOLS, shared: true });
    rfb.scaleViewport = true;
    rfb.background = "#0d0f14";
    rfb.addEventListener("connect", () => {
      session.wait = FIRST_WAIT;
      viewer.say("Connected");
      rfb.focus();
    });
    rfb.addEventListener("disconnect", () => viewer.again(session, "The display is not there.", connect));
  };
  viewer.parts.keys.onclick = () => rfb?.sendCtrlAltDel();
  session.end = () => rfb?.disconnect();
  connect();
}
