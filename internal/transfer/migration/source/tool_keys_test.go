package source

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: migration-leaves-keys-of-tools.
func TestKeysOfToolsAreNotCopied(t *testing.T) {
	const set = `
apiVersion: cluster.k8s.io/v1alpha1
kind: MachineSet
metadata:
  name: a
  labels: {pool: a, %s}
  annotations: {team: blue, %s}
spec:
  selector: {matchLabels: {app.kubernetes.io/instance: fleet}}
  template:
    metadata: {labels: {app.kubernetes.io/instance: fleet}}
    spec: {providerSpec: {value: {cloudProvider: azure, cloudProviderSpec: {location: x}}}}
`
	for name, c := range map[string]struct {
		labels, annotations string
		kept                []string
		notes               int
	}{
		"none": {},
		"Argo CD by annotation": {annotations: "argocd.argoproj.io/tracking-id: 'a:g/k:ns/a', " +
			"argocd.argoproj.io/sync-wave: '1'", notes: 1},
		"Argo CD by label": {labels: "app.kubernetes.io/instance: fleet", notes: 1},
		"Flux": {labels: "kustomize.toolkit.fluxcd.io/name: fleet, kustomize.toolkit.fluxcd.io/namespace: flux-system",
			notes: 1},
		"Flux and Helm": {labels: "helm.toolkit.fluxcd.io/name: fleet, app.kubernetes.io/managed-by: Helm",
			annotations: "meta.helm.sh/release-name: fleet", notes: 2},
		"instance of a Helm release": {labels: "app.kubernetes.io/instance: fleet",
			annotations: "meta.helm.sh/release-name: fleet", kept: []string{"app.kubernetes.io/instance"}, notes: 1},
		"managed by another tool": {labels: "app.kubernetes.io/managed-by: kubeone",
			kept: []string{"app.kubernetes.io/managed-by"}},
		"Hive":     {labels: "hive.openshift.io/managed: 'true'", notes: 1},
		"applyset": {labels: "applyset.kubernetes.io/part-of: x", notes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			old := read(t, fmt.Sprintf(set, c.labels, c.annotations))
			got := clusterK8s{}.Convert(RoleSet, old, nil)
			object := got.Object.(*v1beta1.MachineSet)
			want := append([]string{"pool"}, c.kept...)
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(object.Labels))); diff != "" {
				t.Error("labels:", diff)
			}
			if diff := cmp.Diff([]string{"team"}, slices.Sorted(maps.Keys(object.Annotations))); diff != "" {
				t.Error("annotations:", diff)
			}
			labels := object.Spec.Template.ObjectMeta.Labels
			if labels["app.kubernetes.io/instance"] != "fleet" ||
				object.Spec.Selector.MatchLabels["app.kubernetes.io/instance"] != "fleet" {
				t.Errorf("the selector %v does not match the labels %v", object.Spec.Selector, labels)
			}
			notes := 0
			for _, f := range got.Findings {
				if f.Code == CodeToolKeys {
					notes++
				}
			}
			if notes != c.notes || got.HasBlocker() {
				t.Errorf("the findings are %v", got.Findings)
			}
		})
	}
}

// The selector of a set must still match its machines, and tools ignore objects with a controlling owner.
func TestMachineOfSetKeepsLabels(t *testing.T) {
	old := read(t, `
apiVersion: cluster.k8s.io/v1alpha1
kind: Machine
metadata:
  name: a
  labels: {app.kubernetes.io/instance: fleet}
  annotations: {argocd.argoproj.io/tracking-id: x}
  ownerReferences: [{apiVersion: cluster.k8s.io/v1alpha1, kind: MachineSet, name: s, uid: u, controller: true}]
spec: {providerSpec: {value: {cloudProvider: azure, cloudProviderSpec: {location: x}}}}
`)
	owned := clusterK8s{}.Convert(RoleMachine, old, nil).Object
	if len(owned.GetLabels()) != 1 || len(owned.GetAnnotations()) != 0 {
		t.Errorf("a machine of a set has the labels %v and annotations %v", owned.GetLabels(), owned.GetAnnotations())
	}
	old.SetOwnerReferences(nil)
	if alone := (clusterK8s{}).Convert(RoleMachine, old, nil).Object; len(alone.GetLabels()) != 0 {
		t.Errorf("a machine without a set has the labels %v", alone.GetLabels())
	}
}
