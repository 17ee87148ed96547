package manifests

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

func golden() map[string]func() ([]*unstructured.Unstructured, error) {
	machinist := func(values string) func() ([]*unstructured.Unstructured, error) {
		return func() ([]*unstructured.Unstructured, error) {
			return RenderMachinist(Release{Name: "machinist", Namespace: Namespace, Values: parse(values)})
		}
	}
	provider := func(values string) func() ([]*unstructured.Unstructured, error) {
		return func() ([]*unstructured.Unstructured, error) {
			return RenderProvider(Release{Name: "provider", Namespace: Namespace, Values: parse(values)})
		}
	}
	return map[string]func() ([]*unstructured.Unstructured, error){
		"machinist": machinist("{}"),
		"machinist-separate-target": machinist(`
target: {kubeconfigSecret: {name: target-kubeconfig, key: config}}
`),
		"machinist-in-the-target": machinist(`
install: {processes: false, control: false}
rbac: {targetSubjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: machinist}]}
remediationKinds: [SelfNodeRemediation.self-node-remediation.medik8s.io]
`),
		"machinist-one-namespace": machinist(`
watchNamespace: team-a
clusterID: example/team-a
webhook: {certSecret: machinist-manager-certificate}
policies: {enabled: false}
flowControl: {enabled: false}
`),
		"machinist-everything": machinist(`
nameOverride: fleet
fullnameOverride: fleet-eu
namespaceOverride: fleet-system
commonLabels: {team: common, app.kubernetes.io/name: ignored}
image: {registry: registry.example, repository: manager, digest: "sha256:` + strings.Repeat("0", 64) + `"}
imagePullSecrets: [{name: pull}]
policies: {restrictedNodeLabelPrefixes: [kubernetes.io, trusted.example.com]}
remediationKinds: [SelfNodeRemediation.self-node-remediation.medik8s.io, PowerCycle.fencing.example.com]
webhook: {clientCASecret: api-server-clients}
metrics:
  certSecret: machinist-metrics
  serviceMonitor:
    enabled: true
    labels: {release: prometheus}
    honorLabels: true
    relabelings: [{action: labeldrop, regex: pod}]
    metricRelabelings: [{action: drop, sourceLabels: [__name__], regex: go_.*}]
  readers: [{kind: ServiceAccount, name: p, namespace: monitoring}]
clusterAutoscaler:
  subjects: [{kind: ServiceAccount, name: cluster-autoscaler, namespace: kube-system}]
networkPolicy:
  enabled: true
  metricsFrom: [{namespaceSelector: {}}]
  webhookFrom: [{ipBlock: {cidr: 10.0.0.0/28}}]
  egress: [{}]
replicas: 3
strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
podDisruptionBudget: {minAvailable: 50%}
extraArgs: [--health-timeout=5m]
extraEnv: [{name: HTTPS_PROXY, value: "http://proxy"}]
extraEnvFrom: [{secretRef: {name: proxy}}]
extraVolumes: [{name: ca, configMap: {name: ca}}]
extraVolumeMounts: [{name: ca, mountPath: /ca}]
nodeSelector: {node-role.kubernetes.io/control-plane: ""}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
hostNetwork: true
ports: {probes: 18081, metrics: 18443, webhook: 19443}
dnsPolicy: ClusterFirstWithHostNet
dnsConfig: {options: [{name: ndots, value: "1"}]}
hostAliases: [{ip: 10.0.0.1, hostnames: [api.example]}]
podLabels: {team: platform}
podAnnotations: {example.com/a: b}
service: {annotations: {example.com/c: d}}
serviceAccount: {create: false, annotations: {example.com/identity: x}}
extraObjects:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: extra, namespace: "{{ .Release.Namespace }}"}}
operator: {enabled: true, image: {tag: v1}, extraArgs: [--log-level=debug]}
`),
		"provider-sim": provider(`
provider: {name: sim, flags: {cloud-endpoint: ["http://one", "http://two?a=b&c=d"], create-settle: 5s, concurrent-machines: 1000000}}
restartDeployments: true
`),
		"machinist-shards": machinist(`
shards: 2
policies: {enabled: false}
flowControl: {enabled: false}
`),
		"provider-shards": provider(`
provider: {name: sim}
shards: 3
migrator: {enabled: true, namespaces: [fleet]}
`),
		"provider-migrator": provider(`
provider: {name: sim, flags: {cloud-endpoint: "http://one"}}
extraArgs: [--concurrent-machines=4]
serviceAccount: {name: shared, annotations: {example.com/identity: x}}
migrator:
  {enabled: true, only: true, namespaces: [kube-system, fleet], sharedNamespaces: [cloud-init-settings],
   extraArgs: [--cloud-qps=10], resources: {limits: {memory: 1Gi}}}
`),
		"provider-azure": provider(`
provider: {name: azure}
control: {kubeconfigSecret: {name: control-kubeconfig}}
target: {none: true}
webhook: {enabled: false}
metrics: {secure: false}
podDisruptionBudget: {enabled: false}
serviceAccount: {name: azure}
`),
	}
}

func parse(values string) map[string]any {
	v := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &v); err != nil {
		panic(err)
	}
	return v
}

// Golden files show a reviewer how the installed objects change. The files omit the CRDs, which are in config/crd.
func TestReleasesRenderToGoldenFiles(t *testing.T) {
	for name, render := range golden() {
		t.Run(name, func(t *testing.T) {
			objects, err := render()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := toTyped(objects, nil); err != nil && !strings.Contains(err.Error(), "ServiceMonitor") {
				t.Errorf("convert the objects: %v", err)
			}
			var got bytes.Buffer
			for _, object := range objects {
				if object.GetKind() == "CustomResourceDefinition" {
					continue
				}
				text, err := yaml.Marshal(object.Object)
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString("---\n")
				got.Write(text)
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s differs (go test ./internal/install/manifests -update writes it) (-want +got):\n%s", path, diff)
			}
		})
	}
}

// Rule: bad-input-names-field.
func TestInvalidValueIsRefusedWithItsPath(t *testing.T) {
	for values, want := range map[string]string{
		"replica: 1":             "replica",
		"operator: {replica: 1}": "operator",
		"shards: 65":             "shards",
		"watchNamespace: a\nclusterID: a\nwebhook: {enabled: false}\nshards: 2": "one namespace cannot be divided",
		"replicas: two":                                              "replicas",
		"ports: {probes: 0}":                                         "ports/probes",
		"serviceAccount: {name: other}":                              "serviceAccount.name=other",
		"target: {kubeconfigSecret: a}":                              "target/kubeconfigSecret",
		"install: {control: maybe}":                                  "install/control",
		"image: {pullPolicy: Sometimes}":                             "image/pullPolicy",
		"image: {digest: latest}":                                    "image/digest",
		"clusterID: has space":                                       "clusterID",
		"watchNamespace: A_B":                                        "watchNamespace",
		"log: {level: loud}":                                         "log/level",
		"webhook: {url: 'http://plain'}":                             "webhook/url",
		"extraArgs: [no-dashes]":                                     "extraArgs/0",
		"watchNamespace: team-a":                                     "clusterID is not set",
		"{watchNamespace: a, clusterID: a}":                          "webhook.certSecret is not set",
		"metrics: {serviceMonitor: {enabled: 1}}":                    "metrics/serviceMonitor/enabled",
		"metrics: {enabled: false, serviceMonitor: {enabled: true}}": "metrics.serviceMonitor.enabled",
		"metrics: {serviceMonitor: {enabled: true}}":                 "metrics.certSecret is not set",
		"networkPolicy: {webhookFrom: 10.0.0.0/8}":                   "networkPolicy/webhookFrom",
		"metrics: {enabled: false, prometheusRule: {enabled: true}}": "metrics.prometheusRule.enabled",
		"metrics: {prometheusRule: {runbookURL: x}}":                 "metrics/prometheusRule/runbookURL",
		"metrics: {dashboards: {labels: [a]}}":                       "metrics/dashboards/labels",
		"policies: {restrictedNodeLabelPrefixes: [example.com/]}":    "policies/restrictedNodeLabelPrefixes/0",
	} {
		_, err := RenderMachinist(Release{Name: "machinist", Namespace: Namespace, Values: parse(values)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error that names %s", values, err, want)
		}
	}
	for values, want := range map[string]string{
		"{}":                      "provider",
		"provider: {name: Azure}": "provider/name",
		"provider: {name: sim, flags: {cloud-endpoint: {a: b}}}": "provider/flags/cloud-endpoint",
		"provider: {name: sim, flags: {--cloud-endpoint: b}}":    "--cloud-endpoint",
	} {
		_, err := RenderProvider(Release{Name: "p", Namespace: Namespace, Values: parse(values)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error that names %s", values, err, want)
		}
	}
}
