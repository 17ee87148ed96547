{{- /*
The migrator: its ServiceAccount, roles and Deployment. The template takes a dict:
  root   the chart's top-level scope
  image  the name of the provider's image
  args   the flags that only this provider has
*/ -}}
{{- define "machinist.migrator" -}}
{{- $values := .root.Values -}}
{{- if $values.watchNamespace -}}
{{- fail (printf "migrator.enabled=true cannot be combined with watchNamespace=%s: a migrator reads old objects, Machines and webhook configurations of the whole cluster" $values.watchNamespace) -}}
{{- end -}}
{{- $args := .args -}}
{{- with $values.migrator.sharedNamespaces -}}
{{- $args = append $args (printf "--shared-secret-namespaces=%s" (join "," .)) -}}
{{- end -}}
{{- $scope := dict "root" .root "name" (printf "machinist-migrator-%s" $values.provider.name) "component" "migrator" "args" $args -}}
{{- $_ := set $scope "program" (dict "image" .image "argument" "migrator") -}}
{{- $_ := set $scope "values" (mergeOverwrite (deepCopy (omit $values "extraArgs" "hostNetwork" "replicas" "resources" "serviceAccount" "shards")) (omit $values.migrator "enabled")) -}}
{{- $_ := set $scope.values "serviceAccount" (pick $values.serviceAccount "annotations") -}}
{{ include "machinist.serviceAccount" $scope }}
---
{{ include "machinist.allRoles" $scope }}
{{- if include "machinist.installs" (dict "root" .root "cluster" "control") }}
{{- include "machinist.migratorNamespaces" $scope }}
{{- end }}
{{- if $values.install.processes }}
---
{{ include "machinist.deployment" $scope }}
{{- end }}
{{- end }}

{{- /* The role that a migrator has only in migrator.namespaces, and its role to read Secrets in migrator.sharedNamespaces. */ -}}
{{- define "machinist.migratorNamespaces" -}}
{{- $scope := . -}}
{{- $migrator := .root.Values.migrator -}}
{{- if not $migrator.namespaces -}}
{{- fail "migrator.namespaces is empty: name the namespaces of the Migrations, of the old objects, of the old controllers and their Leases, and of Secrets that the old objects refer to, such as migrator.namespaces={kube-system}" -}}
{{- end -}}
{{- $labels := include "machinist.labels" . | fromYaml -}}
{{- $subjects := list (dict "kind" "ServiceAccount" "name" .name "namespace" (include "machinist.namespace" .root)) -}}
{{- $subjects = concat $subjects .root.Values.rbac.controlSubjects -}}
{{- $text := .root.Files.Get "files/rbac/migrator-namespace.yaml" | replace "machinist-migrator-PROVIDER" .name -}}
{{- $role := $text | replace "PROVIDER" .root.Values.provider.name | fromYaml -}}
{{- $_ := set $role.metadata "labels" $labels }}
---
{{ toYaml $role }}
{{- range $migrator.namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $role.metadata.name }}
  namespace: {{ . }}
  labels: {{- toYaml $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $role.metadata.name }}}
subjects: {{- toYaml $subjects | nindent 2 }}
{{- end }}
{{- range $migrator.sharedNamespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $scope.name }}-shared
  namespace: {{ . }}
  labels: {{- toYaml $labels | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [secrets, configmaps]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $scope.name }}-shared
  namespace: {{ . }}
  labels: {{- toYaml $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $scope.name }}-shared}
subjects: {{- toYaml $subjects | nindent 2 }}
{{- end }}
{{- end }}
