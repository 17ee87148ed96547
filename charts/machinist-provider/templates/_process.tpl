{{- /*
Templates that the charts of all processes share: labels, image, flags, Deployment, role bindings. Each template takes
a dict:
  root       the chart's top-level scope
  name       the name of the process, such as machinist-manager
  component  the short name of the process, used as a label
  values     the settings of the process
  labels     the labels of the object in addition to those of the chart
  operator   set for the operator, which has no target cluster and serves no webhook
  shard      set for the Deployment of one of several shards: {index: …, count: …}
  program    set if the process uses the image of another process: {image: …, argument: …}, where argument is the first
             argument. Such a process serves no webhook
Edit this file only in charts/machinist: make generate copies it to the other charts.
*/ -}}

{{- /* The namespace of the processes. This template takes the chart's top-level scope. */ -}}
{{- define "machinist.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- /* The name of a process's Deployment, of its Service and of most other namespaced objects. This name does not apply to
       roles, webhook configurations, Leases and the ServiceAccount. They have the name of the process, because policies
       recognize them by it. */ -}}
{{- define "machinist.fullname" -}}
{{ .root.Values.fullnameOverride | default "machinist" }}{{ trimPrefix "machinist" .name }}
{{- end }}

{{- define "machinist.serviceAccountName" -}}
{{ (.values.serviceAccount | default dict).name | default .name }}
{{- end }}

{{- define "machinist.selector" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride | default "machinist" }}{{ trimPrefix "machinist" .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- /* The selector of the pods of one Deployment. */ -}}
{{- define "machinist.podSelector" -}}
{{ include "machinist.selector" . }}
{{- with .shard }}
machinist.dev/shard: {{ .index | quote }}
{{- end }}
{{- end }}

{{- /* The labels of the chart take precedence over the labels of the object, which take precedence over commonLabels. */ -}}
{{- define "machinist.labels" -}}
{{- $labels := include "machinist.selector" . | fromYaml }}
{{- $_ := set $labels "app.kubernetes.io/component" .component }}
{{- $_ := set $labels "app.kubernetes.io/part-of" "machinist" }}
{{- $_ := set $labels "app.kubernetes.io/version" .root.Chart.AppVersion }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .root.Release.Service }}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_") }}
{{- merge $labels (.labels | default dict) (.root.Values.commonLabels | default dict) | toYaml }}
{{- end }}

{{- /* If an installation is for only one namespace, the names of its cluster-wide objects end with this namespace. */ -}}
{{- define "machinist.suffix" -}}
{{- with .root.Values.watchNamespace }}-{{ . }}{{ end }}
{{- end }}

{{- define "machinist.image" -}}
{{- $image := .values.image -}}
{{- $repository := $image.repository | default (.program | default dict).image | default .name -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Checks combinations of values, which the schema cannot check. Each error message names a value. */ -}}
{{- define "machinist.check" -}}
{{- $v := .root.Values -}}
{{- if and $v.watchNamespace (not $v.clusterID) -}}
{{- fail (printf "clusterID is not set: with watchNamespace=%s the processes may not read the namespace kube-system, whose UID is the default. Choose an ID that never changes, such as %s" $v.watchNamespace $v.watchNamespace) -}}
{{- end -}}
{{- if and $v.watchNamespace $v.webhook.enabled (not $v.webhook.certSecret) -}}
{{- fail (printf "webhook.certSecret is not set: with watchNamespace=%s the processes cannot maintain a certificate themselves. Name a Secret with tls.crt and tls.key, or set webhook.enabled=false" $v.watchNamespace) -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled requires metrics.enabled: there are no metrics to scrape" -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled $v.metrics.secure (not $v.metrics.certSecret) -}}
{{- fail "metrics.certSecret is not set: with metrics.serviceMonitor.enabled and metrics.secure, Prometheus would send its token to a server whose certificate it cannot verify. Name a Secret with tls.crt, tls.key and ca.crt, or set metrics.secure=false and limit the sources with networkPolicy.metricsFrom" -}}
{{- end -}}
{{- end }}

{{- /* Returns "true" if the release installs the objects of the given cluster ("control" or "target"). Otherwise, it returns
       an empty text. */ -}}
{{- define "machinist.installs" -}}
{{- $given := index .root.Values.install .cluster -}}
{{- $elsewhere := (index .root.Values .cluster).kubeconfigSecret.name -}}
{{- $absent := and (eq .cluster "target") .root.Values.target.none -}}
{{- if and (not $absent) (or (eq (toString $given) "true") (and (eq (toString $given) "auto") (not $elsewhere))) }}true{{ end -}}
{{- end }}

{{- define "machinist.serviceAccount" -}}
{{- $account := .values.serviceAccount | default dict -}}
{{- if ne (toString $account.create) "false" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "machinist.serviceAccountName" . }}
  namespace: {{ include "machinist.namespace" .root }}
  labels: {{- include "machinist.labels" . | nindent 4 }}
  {{- with $account.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* The flags of all processes. */ -}}
{{- define "machinist.flags" -}}
- --control-kubeconfig={{ if .root.Values.control.kubeconfigSecret.name }}/etc/machinist/control/kubeconfig{{ else }}in-cluster{{ end }}
- --leader-election-namespace={{ include "machinist.namespace" .root }}
- --log-level={{ .root.Values.log.level }}
- --log-format={{ .root.Values.log.format }}
- --health-probe-bind-address=:{{ .values.ports.probes }}
- --metrics-bind-address={{ if .root.Values.metrics.enabled }}:{{ .values.ports.metrics }}{{ else }}0{{ end }}
{{- if .root.Values.metrics.enabled }}
- --metrics-secure={{ .root.Values.metrics.secure }}
{{- if and .root.Values.metrics.secure .root.Values.metrics.certSecret }}
- --metrics-cert-dir=/etc/machinist/metrics
{{- end }}
{{- end }}
{{- if not .operator }}
- --target-kubeconfig={{ if .root.Values.target.none }}none{{ else if .root.Values.target.kubeconfigSecret.name }}/etc/machinist/target/kubeconfig{{ else }}in-cluster{{ end }}
{{- with .root.Values.watchNamespace }}
- --namespace={{ . }}
{{- end }}
{{- with .root.Values.clusterID }}
- --cluster-id={{ . }}
{{- end }}
{{- if and .root.Values.secretNamespaces (not .program) (not .root.Values.watchNamespace) }}
- --secret-namespaces={{ join "," .root.Values.secretNamespaces }}
{{- end }}
{{- with .shard }}
- --shards={{ .count }}
- --shard={{ .index }}
{{- end }}
{{- if and .root.Values.webhook.enabled (not .program) }}
- --webhook-bind-address=:{{ .values.ports.webhook }}
{{- if .root.Values.webhook.certSecret }}
- --webhook-cert-dir=/etc/machinist/webhook
{{- else if .root.Values.fullnameOverride }}
- --webhook-hosts={{ include "machinist.fullname" . }}.{{ include "machinist.namespace" .root }}.svc
{{- end }}
{{- if .root.Values.webhook.clientCASecret }}
- --webhook-client-ca-file=/etc/machinist/webhook-clients/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "machinist.deployment" -}}
{{- $secrets := list -}}
{{- $kubeconfigs := dict "control" .root.Values.control.kubeconfigSecret "target" .root.Values.target.kubeconfigSecret -}}
{{- if or .operator .root.Values.target.none }}{{ $kubeconfigs = omit $kubeconfigs "target" }}{{ end -}}
{{- range $cluster, $secret := $kubeconfigs }}
{{- if $secret.name }}
{{- $secrets = append $secrets (dict "name" $cluster "secret" $secret.name "key" $secret.key) }}
{{- end }}
{{- end }}
{{- $webhook := and .root.Values.webhook.enabled (not .operator) (not .program) -}}
{{- $mounts := list -}}
{{- with .root.Values.webhook }}
{{- if and $webhook .certSecret }}
{{- $mounts = append $mounts (dict "name" "webhook-certificate" "secret" .certSecret "folder" "webhook") }}
{{- end }}
{{- if and $webhook .clientCASecret }}
{{- $mounts = append $mounts (dict "name" "webhook-clients" "secret" .clientCASecret "folder" "webhook-clients" "items" (list "ca.crt")) }}
{{- end }}
{{- end }}
{{- with .root.Values.metrics }}
{{- if and .enabled .secure .certSecret }}
{{- $mounts = append $mounts (dict "name" "metrics-certificate" "secret" .certSecret "folder" "metrics" "items" (list "tls.crt" "tls.key")) }}
{{- end }}
{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "machinist.fullname" . }}{{ with .shard }}-shard-{{ .index }}{{ end }}
  namespace: {{ include "machinist.namespace" .root }}
  labels: {{- include "machinist.labels" . | nindent 4 }}
spec:
  # A new pod receives requests only a moment after it is ready. Until then, a rollout must not delete the old pods.
  minReadySeconds: 3
  replicas: {{ .values.replicas }}
  revisionHistoryLimit: 3
  {{- with .values.strategy }}
  strategy: {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels: {{- include "machinist.podSelector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "machinist.labels" (merge (dict "labels" .values.podLabels) .) | nindent 8 }}
        {{- with .shard }}
        machinist.dev/shard: {{ .index | quote }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ .name }}
        {{- with .values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "machinist.serviceAccountName" . }}
      {{- if eq (len $secrets) (len $kubeconfigs) }}
      # The process uses only kubeconfigs, so it does not need the token of the ServiceAccount.
      automountServiceAccountToken: false
      {{- end }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .root.Values.podSecurityContext }}
      securityContext: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .values.hostNetwork }}
      hostNetwork: true
      {{- end }}
      {{- with .values.dnsPolicy }}
      dnsPolicy: {{ . }}
      {{- end }}
      {{- with .values.dnsConfig }}
      dnsConfig: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.hostAliases }}
      hostAliases: {{- toYaml . | nindent 8 }}
      {{- end }}
      # Longer than the sum of the preStop hook and --graceful-shutdown-timeout.
      terminationGracePeriodSeconds: 30
      {{- with .values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .values.affinity }}
      affinity: {{- toYaml .values.affinity | nindent 8 }}
      {{- else }}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: {{- include "machinist.podSelector" . | nindent 20 }}
      {{- end }}
      {{- with .values.topologySpreadConstraints }}
      topologySpreadConstraints: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .name }}
          image: {{ include "machinist.image" . }}
          imagePullPolicy: {{ .values.image.pullPolicy }}
          args:
            {{- with .program }}
            - {{ .argument }}
            {{- end }}
            {{- include "machinist.flags" . | nindent 12 }}
            {{- with .args }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
            {{- with .values.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with .values.extraEnv }}
          env: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .values.extraEnvFrom }}
          envFrom: {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - {name: probes, containerPort: {{ .values.ports.probes }}}
            {{- if .root.Values.metrics.enabled }}
            - {name: metrics, containerPort: {{ .values.ports.metrics }}}
            {{- end }}
            {{- if $webhook }}
            - {name: webhook, containerPort: {{ .values.ports.webhook }}}
            {{- end }}
          livenessProbe:
            httpGet: {path: /healthz, port: probes}
            periodSeconds: 10
          readinessProbe:
            httpGet: {path: /readyz, port: probes}
            periodSeconds: 5
          {{- if $webhook }}
          # During this time, API servers notice that the webhook of this pod is about to stop.
          lifecycle: {preStop: {sleep: {seconds: 5}}}
          {{- end }}
          # The last lines of the log explain why a process exited.
          terminationMessagePolicy: FallbackToLogsOnError
          {{- with .values.resources }}
          resources: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .root.Values.securityContext }}
          securityContext: {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if or $secrets $mounts .values.extraVolumeMounts }}
          volumeMounts:
            {{- range $secrets }}
            - {name: {{ .name }}-kubeconfig, mountPath: /etc/machinist/{{ .name }}, readOnly: true}
            {{- end }}
            {{- range $mounts }}
            - {name: {{ .name }}, mountPath: /etc/machinist/{{ .folder }}, readOnly: true}
            {{- end }}
            {{- with .values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- end }}
      {{- if or $secrets $mounts .values.extraVolumes }}
      volumes:
        {{- range $secrets }}
        - name: {{ .name }}-kubeconfig
          secret:
            secretName: {{ .secret }}
            items: [{key: {{ .key }}, path: kubeconfig}]
        {{- end }}
        {{- range $mounts }}
        - name: {{ .name }}
          secret:
            secretName: {{ .secret }}
            {{- with .items }}
            items: [{{ range $i, $key := . }}{{ if $i }}, {{ end }}{key: {{ $key }}, path: {{ $key }}}{{ end }}]
            {{- end }}
        {{- end }}
        {{- with .values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
{{- end }}

{{- define "machinist.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "machinist.fullname" . }}
  namespace: {{ include "machinist.namespace" .root }}
  labels: {{- include "machinist.labels" . | nindent 4 }}
  {{- with .values.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  selector: {{- include "machinist.selector" . | nindent 4 }}
  ports:
    {{- if and .root.Values.webhook.enabled (not .operator) }}
    - {name: webhook, port: 443, targetPort: webhook}
    {{- end }}
    {{- if .root.Values.metrics.enabled }}
    - {name: metrics, port: 8443, targetPort: metrics}
    {{- end }}
{{- end }}

{{- define "machinist.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "machinist.fullname" . }}
  namespace: {{ include "machinist.namespace" .root }}
  labels: {{- include "machinist.labels" . | nindent 4 }}
spec:
  {{- with .values.podDisruptionBudget }}
  {{- if .minAvailable }}
  minAvailable: {{ .minAvailable }}
  {{- else }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- end }}
  {{- end }}
  selector:
    matchLabels: {{- include "machinist.selector" . | nindent 6 }}
{{- end }}

{{- define "machinist.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "machinist.fullname" . }}
  namespace: {{ include "machinist.namespace" .root }}
  labels: {{- include "machinist.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "machinist.selector" . | nindent 6 }}
  policyTypes: [Ingress{{ if .root.Values.networkPolicy.egress }}, Egress{{ end }}]
  ingress:
    # The addresses from which kubelets send probes cannot be matched by a selector.
    - ports: [{protocol: TCP, port: probes}]
    {{- if and .root.Values.webhook.enabled (not .operator) }}
    - ports: [{protocol: TCP, port: webhook}]
      {{- with .root.Values.networkPolicy.webhookFrom }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if .root.Values.metrics.enabled }}
    - ports: [{protocol: TCP, port: metrics}]
      {{- with .root.Values.networkPolicy.metricsFrom }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
  {{- with .root.Values.networkPolicy.egress }}
  egress: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "machinist.serviceMonitor" -}}
{{- $monitor := .root.Values.metrics.serviceMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "machinist.fullname" . }}
  namespace: {{ include "machinist.namespace" .root }}
  labels: {{- include "machinist.labels" (merge (dict "labels" $monitor.labels) .) | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "machinist.selector" . | nindent 6 }}
  endpoints:
    - port: metrics
      interval: {{ $monitor.interval }}
      {{- if $monitor.honorLabels }}
      honorLabels: true
      {{- end }}
      {{- with $monitor.relabelings }}
      relabelings: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $monitor.metricRelabelings }}
      metricRelabelings: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .root.Values.metrics.secure }}
      scheme: https
      bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
      # Prometheus must verify the certificate before it sends its token.
      tlsConfig:
        serverName: {{ include "machinist.fullname" . }}.{{ include "machinist.namespace" .root }}.svc
        ca: {secret: {name: {{ .root.Values.metrics.certSecret }}, key: ca.crt}}
      {{- end }}
{{- end }}

{{- /* The objects in the cluster in which the processes run. */ -}}
{{- define "machinist.workload" -}}
{{- $scope := . -}}
{{- $shards := int (.values.shards | default 1) -}}
{{- if gt $shards 1 }}
{{- range $index := until $shards }}
{{ include "machinist.deployment" (merge (dict "shard" (dict "index" $index "count" $shards)) $scope) }}
---
{{- end }}
{{- else }}
{{ include "machinist.deployment" . }}
---
{{- end }}
{{- if or (and .root.Values.webhook.enabled (not .operator)) .root.Values.metrics.enabled }}
{{ include "machinist.service" . }}
---
{{- end }}
{{- if and .values.podDisruptionBudget.enabled (gt (int .values.replicas) 1) }}
{{ include "machinist.podDisruptionBudget" . }}
---
{{- end }}
{{- if .root.Values.networkPolicy.enabled }}
{{ include "machinist.networkPolicy" . }}
---
{{- end }}
{{- if and .root.Values.metrics.enabled .root.Values.metrics.serviceMonitor.enabled }}
{{ include "machinist.serviceMonitor" . }}
{{- end }}
{{- end }}

{{- /*
The roles of a process in one cluster, each with its binding. The template reads the roles from a file, and replaces the
fixed names and namespaces in this file. Additional keys of the dict:
  file      the copy of a file of config/rbac
  within    the only namespace in which a ClusterRole is bound, or "". The ClusterRole whose name ends with -secrets is
            bound in the namespaces of the value secretNamespaces
  subjects  the subjects that get the roles in addition to the ServiceAccount
*/ -}}
{{- define "machinist.roles" -}}
{{- $scope := . -}}
{{- $text := .root.Files.Get .file | replace "machinist-system" (include "machinist.namespace" .root) -}}
{{- $text = regexReplaceAll "machinist-(provider|migrator)-PROVIDER" $text .name -}}
{{- range $document := regexSplit "(?m)^---$" $text -1 }}
{{- $role := fromYaml $document }}
{{- if $role }}
{{- $labels := include "machinist.labels" $scope | fromYaml }}
{{- $ofSecrets := hasSuffix "-secrets" $role.metadata.name }}
{{- $_ := set $role.metadata "labels" $labels }}
{{- $_ := set $role.metadata "name" (print $role.metadata.name (include "machinist.suffix" $scope)) }}
{{- range $rule := $role.rules }}
{{- if and $rule.resourceNames (has "leases" $rule.resources) }}
{{- $names := list }}
{{- range $lease := $rule.resourceNames }}
{{- $names = append $names (print $lease (include "machinist.suffix" $scope)) }}
{{- if gt (int $scope.shards) 1 }}
{{- range $index := until (int $scope.shards) }}
{{- $names = append $names (printf "%s-shard-%d" $lease $index) }}
{{- end }}
{{- end }}
{{- end }}
{{- $_ := set $rule "resourceNames" $names }}
{{- end }}
{{- end }}
{{- range $kind := $scope.remediationKinds }}
{{- $_ := set $role "rules" (concat $role.rules (include "machinist.remediationRules" $kind | fromYamlArray)) }}
{{- end }}
---
{{ toYaml $role }}
{{- $namespaces := list ($role.metadata.namespace | default $scope.within) }}
{{- if and $ofSecrets (not $scope.within) (not (has "*" $scope.root.Values.secretNamespaces)) }}
{{- $namespaces = $scope.root.Values.secretNamespaces }}
{{- end }}
{{- range $within := $namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if $within }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  name: {{ $role.metadata.name }}
  {{- with $within }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- toYaml $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $role.kind }}
  name: {{ $role.metadata.name }}
subjects:
  - {kind: ServiceAccount, name: {{ include "machinist.serviceAccountName" $scope }}, namespace: {{ include "machinist.namespace" $scope.root }}}
  {{- with $scope.subjects }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The rules for a kind of remediations, such as SelfNodeRemediation.self-node-remediation.medik8s.io, and for its
       templates. */ -}}
{{- define "machinist.remediationRules" -}}
{{- $parts := splitn "." 2 . -}}
- apiGroups: [{{ $parts._1 }}]
  resources: [{{ lower $parts._0 }}s]
  verbs: [get, list, create, patch, delete]
- apiGroups: [{{ $parts._1 }}]
  resources: [{{ lower $parts._0 }}templates]
  verbs: [get]
{{- end }}

{{- /* All roles of a process, for the clusters whose objects the release installs. */ -}}
{{- define "machinist.allRoles" -}}
{{- $scope := dict "root" .root "name" .name "component" .component "values" .values "shards" (.values.shards | default 1) }}
{{- if and .root.Values.watchNamespace (gt (int $scope.shards) 1) -}}
{{- fail (printf "shards=%d cannot be combined with watchNamespace=%s: one namespace cannot be divided" (int $scope.shards) .root.Values.watchNamespace) -}}
{{- end -}}
{{- if include "machinist.installs" (dict "root" .root "cluster" "control") }}
{{- $_ := set $scope "file" (printf "files/rbac/%s-control.yaml" .component) }}
{{- $_ := set $scope "within" .root.Values.watchNamespace }}
{{- $_ := set $scope "subjects" .root.Values.rbac.controlSubjects }}
{{- include "machinist.roles" $scope }}
{{- if and .root.Values.watchNamespace .root.Values.metrics.enabled .root.Values.metrics.secure }}
---
# To check which clients may read metrics, the process uses TokenReview and SubjectAccessReview, which are not
# namespaced.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}{{ include "machinist.suffix" . }}-metrics
  labels: {{- include "machinist.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects:
  - {kind: ServiceAccount, name: {{ include "machinist.serviceAccountName" . }}, namespace: {{ include "machinist.namespace" .root }}}
  {{- with .root.Values.rbac.controlSubjects }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- if and (not .operator) (include "machinist.installs" (dict "root" .root "cluster" "target")) }}
{{- $_ := set $scope "file" (printf "files/rbac/%s-target.yaml" .component) }}
{{- $_ := set $scope "within" "" }}
{{- $_ := set $scope "subjects" .root.Values.rbac.targetSubjects }}
{{- $_ := set $scope "remediationKinds" .values.remediationKinds }}
{{ include "machinist.roles" $scope }}
{{- end }}
{{- end }}

{{- /* The clientConfig of a webhook, which specifies how API servers connect to the process. The default of path is
       /validate. The process itself adds the caBundle. */ -}}
{{- define "machinist.webhookClient" -}}
{{- $path := .path | default "/validate" -}}
{{- if .root.Values.webhook.url -}}
url: {{ trimSuffix "/" .root.Values.webhook.url }}{{ $path }}
{{- else -}}
service: {namespace: {{ include "machinist.namespace" .root }}, name: {{ include "machinist.fullname" . }}, path: {{ $path }}}
{{- end }}
{{- end }}

{{- define "machinist.webhookNamespaces" -}}
{{- with .root.Values.watchNamespace -}}
- {key: kubernetes.io/metadata.name, operator: In, values: [{{ . }}]}
{{- else -}}
- {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}
{{- end }}
{{- end }}

{{- /* The objects in extraObjects. Templates in them are evaluated. This template takes the chart's top-level scope. */ -}}
{{- define "machinist.extraObjects" -}}
{{- range .Values.extraObjects }}
---
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end }}
