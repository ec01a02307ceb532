"""What botocore finds out again for each session and client, and is always the same.

A session with its first client takes 20 ms of processor time, most of it for these. Nothing that a
client sends or understands depends on it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import botocore.client
import botocore.hooks
import botocore.regions
import botocore.session

if TYPE_CHECKING:
    from collections.abc import Callable


def share_constants() -> None:
    """Let all sessions and clients of this process share what botocore makes for each of them."""
    _share_models()
    _share_methods()
    _copy_handlers_sooner()
    _share_rules_of_endpoints()
    _share_names_of_events()
    _share_signatures()


def _share_models() -> None:
    # A loader keeps the models of services that it has read: 30 ms for each service.
    names = vars(botocore.session)
    names["create_loader"] = cache(names["create_loader"])


def _share_methods() -> None:
    # The models of all operations of a service, and the methods of its clients, one for each.
    creator: Any = botocore.client.ClientCreator
    load, make = creator._load_service_model, creator._create_methods
    models, methods = dict[Any, Any](), dict[Any, dict[str, Any]]()

    def load_once(self: Any, service_name: str, api_version: str | None = None) -> Any:
        key = (self._loader, service_name, api_version)
        if key not in models:
            models[key] = load(self, service_name, api_version)
        return models[key]

    def make_once(self: Any, service_model: Any) -> dict[str, Any]:
        if service_model not in methods:
            methods[service_model] = make(self, service_model)
        return dict(methods[service_model])  # boto3 adds its own to those of a client's class

    creator._load_service_model, creator._create_methods = load_once, make_once


def _share_rules_of_endpoints() -> None:
    names = vars(botocore.regions)
    make, made = names["EndpointProvider"], dict[Any, Any]()

    def make_once(**given: Any) -> Any:
        # The loader keeps the rules that it has read, so each has one number.
        key = tuple(map(id, given.values()))
        if key not in made:
            made[key] = make(**given)
        return made[key]

    names["EndpointProvider"] = make_once


def _copy_handlers_sooner() -> None:
    # Each client copies its session's tree of handlers, by `copy.copy` of each list.
    trie: Any = vars(botocore.hooks)["_PrefixTrie"]
    nodes: Any = botocore.hooks.NodeList

    def copy(self: Any, node: dict[str, Any]) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for key, value in node.items():
            if type(value) is dict:
                copied[key] = copy(self, value)
            else:
                copied[key] = nodes(*map(list, value)) if type(value) is nodes else value
        return copied

    trie._recursive_copy = copy


def _share_names_of_events() -> None:
    # Each client goes through all aliases again, for each event that it sends.
    aliaser: Any = botocore.hooks.EventAliaser
    find, known = aliaser._alias_event_name, dict[str, str]()

    def find_once(self: Any, event_name: str) -> str:
        if event_name not in known:
            known[event_name] = find(self, event_name)
        return known[event_name]

    aliaser._alias_event_name = find_once


def _share_signatures() -> None:
    # A session registers 250 handlers, nearly all of them functions of modules.
    names = vars(botocore.hooks)
    names["accepts_kwargs"] = _remember_functions(names["accepts_kwargs"])


def _remember_functions(ask: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
    """Return `ask`, which remembers what it is told of functions and of the methods of classes."""
    known = lru_cache(1_000)(ask)
    return lambda handler: known(getattr(handler, "__func__", handler))
