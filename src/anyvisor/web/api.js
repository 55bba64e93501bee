// Calls to the API server, with the cookie of the login. Errors are sentences.

export const VIRT = "/apis/kubevirt.io/v1";
export const SUB = "/apis/subresources.kubevirt.io/v1";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, "The server does not answer. Is `anyvisor up` running?");
  }
  const text = await answer.text();
  if (answer.ok) return text ? JSON.parse(text) : null;
  let message = text.trim();
  try {
    message = JSON.parse(text).message;
  } catch { /* the text is the message */ }
  throw new ApiError(answer.status, message || `The server answered ${answer.status}.`);
}

// Lists a kind and follows its changes for ever; `changed` gets all objects by uid, `failed` an error or null.
export async function follow(path, changed, failed) {
  for (let wait = 500; ; wait = Math.min(wait * 2, 10000)) {
    try {
      const listed = await call("GET", path);
      const objects = new Map(listed.items.map((each) => [each.metadata.uid, each]));
      changed(objects);
      failed(null);
      wait = 500;
      await events(`${path}?watch=true&resourceVersion=${listed.metadata.resourceVersion}`, ({ type, object }) => {
        if (type === "ERROR") return false;
        if (type === "DELETED") objects.delete(object.metadata.uid);
        else objects.set(object.metadata.uid, object);
        changed(objects);
        return true;
      });
    } catch (error) {
      failed(error);
      if (error.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

async function events(path, each) {
  const answer = await fetch(path);
  if (!answer.ok) throw new ApiError(answer.status, "The list cannot be followed.");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line && !each(JSON.parse(line))) return void reader.cancel();
    }
  }
}

export function streamUrl(machine, kind) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${location.host}${instancePath(machine)}/${kind}`;
}

export const PROTOCOLS = ["plain.kubevirt.io"];

export function instancePath(machine) {
  return `${SUB}/namespaces/${machine.namespace}/virtualmachineinstances/${machine.name}`;
}

export function machinePath(machine) {
  return `${SUB}/namespaces/${machine.namespace}/virtualmachines/${machine.name}`;
}
