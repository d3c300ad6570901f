{{/* What the operator may do in a namespace: see each rule's reason. */}}
{{- define "headrace.namespacedRules" -}}
# Its own resources: it notes finalizers and progress on them, and never makes or deletes one.
- apiGroups: [headrace.dev]
  resources:
    - brokerclusters
    - vhosts
    - users
    - permissions
    - exchanges
    - queues
    - bindings
    - policies
    - consumerscalers
    - pipelineruns
  verbs: [get, list, watch, patch, update]
- apiGroups: [headrace.dev]
  resources:
    - brokerclusters/status
    - vhosts/status
    - users/status
    - permissions/status
    - exchanges/status
    - queues/status
    - bindings/status
    - policies/status
    - consumerscalers/status
    - pipelineruns/status
  verbs: [get, patch, update]
# To be owner of what it makes.
- apiGroups: [headrace.dev]
  resources: [brokerclusters/finalizers, users/finalizers, pipelineruns/finalizers]
  verbs: [update]
# What a cluster is made of.
- apiGroups: [""]
  resources: [configmaps, secrets, services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# What a job of the pipeline is made of, besides.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors, podmonitors]
  verbs: [get, list, watch, create, patch, delete]
# It rolls a cluster by deleting one pod after the other, and makes, grows and removes volumes.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
# Consumers are scaled, and nothing else of them is touched.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch]
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale]
  verbs: [get, patch, update]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch]
# It tells what it does.
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
