"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch.

All three work on private copies: the caller's objects are never changed.
"""

import copy
from collections.abc import Sequence
from typing import Any, cast

from anyvisor.embedded.apiserver.schema import ANYTHING, Node
from anyvisor.embedded.apiserver.status import bad_request
from anyvisor.embedded.apiserver.values import as_object

Json = dict[str, Any]
MAX_OPERATIONS = 10_000


class PatchError(ValueError):
    """The patch cannot be applied to this object (422); the message says which operation and why."""


def json_patch(document: Json, operations: Any) -> Json:
    """Apply an RFC 6902 patch. Raises PatchError for a failing operation, a 400 Status for a malformed one."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    steps = cast("list[Any]", operations)
    if len(steps) > MAX_OPERATIONS:
        raise bad_request(f"a JSON patch may have at most {MAX_OPERATIONS} operations")
    root: Any = copy.deepcopy(document)
    for step in steps:
        if not isinstance(step, dict):
            raise bad_request("every operation of a JSON patch must be an object")
        root = _operate(root, cast("Json", step))
    if not isinstance(root, dict):
        raise PatchError("the patch replaces the object by something that is no object")
    return cast("Json", root)


def _operate(root: Any, step: Json) -> Any:
    op, path = step.get("op"), step.get("path")
    if not isinstance(path, str):
        raise bad_request("an operation of a JSON patch lacks its path")
    if op in ("add", "replace", "test") and "value" not in step:
        raise bad_request(f"the operation {op} {path} lacks its value")
    match op:
        case "add":
            return _add(root, path, copy.deepcopy(step["value"]))
        case "remove":
            return _remove(root, path)
        case "replace":
            _find(root, path)
            return _replace(root, path, copy.deepcopy(step["value"]))
        case "test":
            if _lookup_or_none(root, path) != step["value"]:
                raise PatchError(f"testing value {path} failed")
            return root
        case "copy":
            return _add(root, path, copy.deepcopy(_find(root, str(step.get("from", "")))))
        case "move":
            source = str(step.get("from", ""))
            value = _find(root, source)
            return _add(_remove(root, source), path, value)
        case _:
            raise PatchError(f"unknown operation {op!r} in a JSON patch")


def _tokens(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise bad_request(f"the path {path!r} of a JSON patch must start with a slash")
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _index(items: Sequence[Any], token: str, path: str, *, limit: int) -> int:
    if not (token.isascii() and token.isdigit()) or int(token) > limit:
        raise PatchError(f"the path {path} does not exist: {token!r} is no index of a list of {len(items)}")
    return int(token)


def _step(value: Any, token: str, path: str) -> Any:
    if isinstance(value, dict):
        found = cast("Json", value)
        if token not in found:
            raise PatchError(f"the path {path} does not exist: {token!r} is missing")
        return found[token]
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return items[_index(items, token, path, limit=len(items) - 1)]
    raise PatchError(f"the path {path} does not exist: there is nothing below {token!r}")


def _find(root: Any, path: str) -> Any:
    for token in _tokens(path):
        root = _step(root, token, path)
    return root


def _lookup_or_none(root: Any, path: str) -> Any:
    try:
        return _find(root, path)
    except PatchError:
        return None


def _parent(root: Any, path: str) -> tuple[Any, str]:
    *parents, last = _tokens(path)
    for token in parents:
        root = _step(root, token, path)
    return root, last


def _add(root: Any, path: str, value: Any) -> Any:
    if not path:
        return value
    parent, last = _parent(root, path)
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        items = cast("list[Any]", parent)
        items.insert(len(items) if last == "-" else _index(items, last, path, limit=len(items)), value)
    else:
        raise PatchError(f"the path {path} does not exist: its parent is no object and no list")
    return root


def _replace(root: Any, path: str, value: Any) -> Any:
    if not path:
        return value
    parent, last = _parent(root, path)
    if isinstance(parent, list):
        parent[int(last)] = value
    else:
        parent[last] = value
    return root


def _remove(root: Any, path: str) -> Any:
    if not path:
        raise PatchError("the whole object cannot be removed by a patch")
    _find(root, path)
    parent, last = _parent(root, path)
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
    return root


def merge_patch(document: Any, patch: Any) -> Any:
    """Apply an RFC 7386 patch."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result: Json = dict(cast("Json", document)) if isinstance(document, dict) else {}
    for key, value in cast("Json", patch).items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_LIST = "$deleteFromPrimitiveList/"
SET_ORDER = "$setElementOrder/"


def strategic_merge(document: Json, patch: Json, schema: Node) -> Json:
    """Apply a strategic merge patch to an object of a built-in kind.

    Lists with a patch merge key are merged by it, `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and
    `$setElementOrder` are honoured. Raises PatchError when an item of a keyed list lacks its key.
    """
    return _merge_object(copy.deepcopy(document), patch, schema)


def _merge_object(target: Json, patch: Json, schema: Node) -> Json:
    directive = patch.get(DIRECTIVE)
    if directive == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown directive {directive!r} in a strategic merge patch")
    if RETAIN_KEYS in patch:
        keep = set(patch[RETAIN_KEYS])
        target = {key: value for key, value in target.items() if key in keep}
    for key, value in patch.items():
        if key in (DIRECTIVE, RETAIN_KEYS) or key.startswith((DELETE_LIST, SET_ORDER)):
            continue
        _merge_field(target, key, value, schema)
    for key, value in patch.items():
        if key.startswith(DELETE_LIST):
            name = key.removeprefix(DELETE_LIST)
            target[name] = [item for item in target.get(name, []) if item not in value]
    for key, value in patch.items():
        if key.startswith(SET_ORDER):
            _order(target, key.removeprefix(SET_ORDER), value, schema)
    return target


def _child(schema: Node, key: str) -> Node:
    return schema.props.get(key) or schema.extra or ANYTHING


def _merge_field(target: Json, key: str, value: Any, schema: Node) -> None:
    node = _child(schema, key)
    current = target.get(key)
    if value is None:
        target.pop(key, None)
    elif current is None and as_object(value).get(DIRECTIVE) in ("replace", "delete"):
        return  # what it names is not there: the original then drops the whole value
    elif isinstance(value, dict) and (isinstance(current, dict) or current is None):
        merged = _merge_object(as_object(current), cast("Json", value), node)
        target[key] = merged
    elif isinstance(value, list) and "merge" in node.patch_strategy:
        items = cast("list[Any]", value)
        existing = cast("list[Any]", current) if isinstance(current, list) else []
        target[key] = _merge_list(existing, items, node, key)
    else:
        target[key] = copy.deepcopy(cast("Any", value))


def _merge_list(current: list[Any], patch: list[Any], node: Node, name: str) -> list[Any]:
    if not node.patch_key:
        return [*current, *[copy.deepcopy(item) for item in patch if item not in current]]
    items = node.items or ANYTHING
    if any(as_object(item).get(DIRECTIVE) == "replace" for item in patch):
        return [copy.deepcopy(item) for item in patch if DIRECTIVE not in item]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict):
            raise PatchError(f"an item of {name} in the patch is no object")
        entry = cast("Json", item)
        if node.patch_key not in entry:
            raise PatchError(f"map: {entry} does not contain declared merge key: {node.patch_key}")
        at = _position(result, node.patch_key, entry[node.patch_key])
        if entry.get(DIRECTIVE) == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_merge_object({}, entry, items))
        else:
            result[at] = _merge_object(result[at], entry, items)
    return _in_order(result, [item for item in patch if DIRECTIVE not in item], node.patch_key, current)


def _position(items: Sequence[Any], key: str, value: Any) -> int | None:
    for at, item in enumerate(items):
        if as_object(item).get(key) == value:
            return at
    return None


def _order(target: Json, name: str, order: list[Any], schema: Node) -> None:
    if name in target:
        target[name] = _in_order(target[name], order, _child(schema, name).patch_key, target[name])


def _in_order(items: list[Any], order: list[Any], key: str, before: list[Any]) -> list[Any]:
    """Sort what the patch names as the patch does; the others keep their place before what followed them."""

    def identity(item: Any) -> Any:
        return item.get(key) if key else item

    known = [identity(item) for item in before]
    wanted = [identity(item) for item in order]
    left = [item for item in items if identity(item) not in wanted]
    right = sorted((item for item in items if identity(item) in wanted), key=lambda item: wanted.index(identity(item)))
    result: list[Any] = []
    while left and right:
        first, second = identity(left[0]), identity(right[0])
        comes_first = first in known and second in known and known.index(first) < known.index(second)
        result.append((left if comes_first else right).pop(0))
    return [*result, *left, *right]
