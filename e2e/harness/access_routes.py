"""Permissions for each route of the HTTP API; see `access_table`."""

from __future__ import annotations

from typing import Final

from e2e.harness.access_table import rows

ENDS: Final = "/api/bindings/{vhost}/e/{source}/{kind:[qe]}/{destination}"
CHECKS: Final = "/api/health/checks"
LEADERS: Final = f"{CHECKS}/quorum-queues-without-elected-leaders"

# Answered to anybody, whoever asks.
OPEN_ROUTES: Final = frozenset(
    {"GET /api/health/live", "GET /api/health/ready", "GET /api/openapi.json"}
)

HTTP_ROWS: Final = rows(f"""
GET {CHECKS}/alarms | manages
GET {CHECKS}/local-alarms | manages
GET {CHECKS}/ready-to-serve-clients | manages
GET {CHECKS}/is-in-service | manages
GET {CHECKS}/virtual-hosts | manages
GET {CHECKS}/metadata-store/initialized | manages
GET {CHECKS}/metadata-store/initialized/with-data | manages
GET {CHECKS}/port-listener/{{port}} | manages
GET {CHECKS}/protocol-listener/{{protocol}} | manages
GET {CHECKS}/certificate-expiration/{{within}}/{{unit}} | manages
GET {CHECKS}/node-is-quorum-critical | manages
GET {CHECKS}/node-is-mirror-sync-critical | manages
GET {CHECKS}/below-node-connection-limit | manages
GET {LEADERS}/all-vhosts | manages
GET {LEADERS}/vhost/{{vhost}} | manages seen
GET {LEADERS}/all-vhosts/pattern/{{pattern}} | manages
GET {LEADERS}/vhost/{{vhost}}/pattern/{{pattern}} | manages seen
GET /api/queues/{{vhost}}/{{queue}}/archive | manages seen
DELETE /api/queues/{{vhost}}/{{queue}}/archive/groups/{{group}} | manages entered read
GET /api/bindings | manages
GET /api/bindings/{{vhost}} | manages seen
GET {ENDS} | manages seen
POST {ENDS} | manages entered write read
GET {ENDS}/{{key}} | manages seen
DELETE {ENDS}/{{key}} | manages entered write read
GET /api/queues/{{vhost}}/{{queue}}/bindings | manages seen
GET /api/exchanges/{{vhost}}/{{exchange}}/bindings/source | manages seen
GET /api/exchanges/{{vhost}}/{{exchange}}/bindings/destination | manages seen
GET /api/connections | manages
GET /api/vhosts/{{vhost}}/connections | manages seen
GET /api/connections/username/{{user}} | manages
DELETE /api/connections/username/{{user}} | administers
GET /api/connections/{{name}} | manages
DELETE /api/connections/{{name}} | manages
GET /api/connections/{{name}}/channels | manages
GET /api/channels | manages
GET /api/channels/{{channel}} | manages
GET /api/vhosts/{{vhost}}/channels | manages seen
GET /api/consumers | manages
GET /api/consumers/{{vhost}} | manages seen
GET /api/cluster/nodes | monitors
POST /api/cluster/nodes | administers
GET /api/cluster/nodes/{{node}} | monitors
POST /api/cluster/nodes/{{node}}/drain | administers
POST /api/cluster/nodes/{{node}}/revive | administers
DELETE /api/cluster/nodes/{{node}} | administers
GET /api/cluster/version | monitors
POST /api/cluster/version/raise | administers
GET /api/queues/quorum/{{vhost}}/{{queue}}/status | manages seen
POST /api/queues/quorum/{{vhost}}/{{queue}}/replicas/add | administers
DELETE /api/queues/quorum/{{vhost}}/{{queue}}/replicas/delete | administers
POST /api/queues/quorum/replicas/on/{{node}}/grow | administers
DELETE /api/queues/quorum/replicas/on/{{node}}/shrink | administers
GET /api/queues/{{vhost}}/{{queue}}/members | manages seen
PUT /api/queues/{{vhost}}/{{queue}}/members/{{node}} | administers
DELETE /api/queues/{{vhost}}/{{queue}}/members/{{node}} | administers
PUT /api/queues/{{vhost}}/{{queue}}/leader | administers
GET /api/rebalance/queues | manages
POST /api/rebalance/queues | administers
GET /api/definitions | administers
POST /api/definitions | administers
GET /api/definitions/{{vhost}} | administers
POST /api/definitions/{{vhost}} | administers entered
GET /api/exchanges | manages
GET /api/exchanges/{{vhost}} | manages seen
GET /api/exchanges/{{vhost}}/{{exchange}} | manages seen
PUT /api/exchanges/{{vhost}}/{{exchange}} | manages entered configure makes
DELETE /api/exchanges/{{vhost}}/{{exchange}} | manages entered configure
GET /api/flow/advice | manages seen
GET /api/flow/connections | manages
GET /api/flow/queues | manages
GET /api/flow/graph | manages
GET /api/flow/why | manages seen
GET /api/flow/limits | monitors
GET /api/flow/limits/{{limit}} | monitors
PUT /api/flow/limits/{{limit}} | administers
DELETE /api/flow/limits/{{limit}} | administers
GET /api/queues/{{vhost}}/{{queue}}/lease-groups | manages seen
DELETE /api/queues/{{vhost}}/{{queue}}/lease-groups/{{group}} | manages entered read
GET /api/log-level | monitors
PUT /api/log-level | administers
POST /api/queues/{{vhost}}/{{queue}}/get | manages entered read
GET /api/queues/{{vhost}}/{{queue}}/messages | manages entered read
POST /api/queues/{{vhost}}/{{queue}}/messages/move | manages entered read write
DELETE /api/queues/{{vhost}}/{{queue}}/messages/{{id}} | manages entered read
POST /api/exchanges/{{vhost}}/{{exchange}}/publish | manages entered write
GET /api/aliveness-test/{{vhost}} | manages entered configure write read
GET /api/parameters | makes-policies
GET /api/parameters/{{component}} | makes-policies
GET /api/parameters/{{component}}/{{vhost}} | makes-policies seen
GET /api/parameters/{{component}}/{{vhost}}/{{name}} | makes-policies seen
PUT /api/parameters/{{component}}/{{vhost}}/{{name}} | administers entered makes
DELETE /api/parameters/{{component}}/{{vhost}}/{{name}} | administers entered
GET /api/global-parameters | administers
GET /api/global-parameters/{{name}} | administers
PUT /api/global-parameters/{{name}} | administers
DELETE /api/global-parameters/{{name}} | administers
GET /metrics | monitors
GET /metrics/per-object | monitors
GET /metrics/detailed | monitors
GET /api/nodes | monitors
GET /api/nodes/{{node}} | monitors
GET /api/auth/attempts/{{node}} | monitors
GET /api/nodes/{{node}}/memory | monitors
GET /api/overview | manages
GET /api/cluster-name | manages
GET /api/extensions | manages
GET /api/feature-flags | manages
GET /api/deprecated-features | manages
GET /api/deprecated-features/used | manages
GET /api/auth | manages
GET /api/policies | manages
GET /api/policies/{{vhost}} | manages seen
GET /api/policies/{{vhost}}/{{name}} | manages seen
PUT /api/policies/{{vhost}}/{{name}} | makes-policies entered makes
DELETE /api/policies/{{vhost}}/{{name}} | makes-policies entered
GET /api/operator-policies | manages
GET /api/operator-policies/{{vhost}} | manages seen
GET /api/operator-policies/{{vhost}}/{{name}} | manages seen
PUT /api/operator-policies/{{vhost}}/{{name}} | administers entered makes
DELETE /api/operator-policies/{{vhost}}/{{name}} | administers entered
GET /api/queues | manages
GET /api/queues/detailed | manages
GET /api/queues/{{vhost}} | manages seen
GET /api/queues/{{vhost}}/{{queue}} | manages seen
PUT /api/queues/{{vhost}}/{{queue}} | manages entered configure makes
DELETE /api/queues/{{vhost}}/{{queue}} | manages entered configure
POST /api/queues/{{vhost}}/{{queue}}/actions | manages entered configure
DELETE /api/queues/{{vhost}}/{{queue}}/contents | manages entered read
GET /api/users/{{user}}/permissions | administers
GET /api/vhosts/{{vhost}}/permissions | administers
GET /api/permissions | administers
GET /api/permissions/{{vhost}}/{{user}} | administers
PUT /api/permissions/{{vhost}}/{{user}} | administers
DELETE /api/permissions/{{vhost}}/{{user}} | administers
GET /api/topic-permissions | administers
GET /api/users/{{user}}/topic-permissions | administers
GET /api/vhosts/{{vhost}}/topic-permissions | administers
GET /api/topic-permissions/{{vhost}}/{{user}} | administers
PUT /api/topic-permissions/{{vhost}}/{{user}} | administers
DELETE /api/topic-permissions/{{vhost}}/{{user}} | administers
GET /api/topic-permissions/{{vhost}}/{{user}}/{{exchange}} | administers
DELETE /api/topic-permissions/{{vhost}}/{{user}}/{{exchange}} | administers
GET /api/whoami | manages
GET /api/users | administers
GET /api/users/without-permissions | administers
POST /api/users/bulk-delete | administers
GET /api/users/{{user}} | administers
PUT /api/users/{{user}} | administers makes
DELETE /api/users/{{user}} | administers
GET /api/user-limits | administers
GET /api/user-limits/{{user}} | administers
PUT /api/user-limits/{{user}}/{{limit}} | administers
DELETE /api/user-limits/{{user}}/{{limit}} | administers
GET /api/vhosts | manages
GET /api/vhosts/{{vhost}} | manages seen
PUT /api/vhosts/{{vhost}} | administers makes
DELETE /api/vhosts/{{vhost}} | administers ends
POST /api/vhosts/{{vhost}}/start/{{node}} | administers
GET /api/vhost-limits | manages
GET /api/vhost-limits/{{vhost}} | manages seen
PUT /api/vhost-limits/{{vhost}}/{{limit}} | administers
DELETE /api/vhost-limits/{{vhost}}/{{limit}} | administers
""")
