package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

func (f *oldFleet) adopt(args ...string) outcome {
	f.Helper()
	return execute(f, append([]string{"adopt"}, append(args, "-n", f.namespace)...)...)
}

func (f *oldFleet) class(name, provider string) {
	f.Helper()
	f.must(f.api.Create(context.Background(), &v1beta1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec: v1beta1.MachineClassSpec{Provider: provider, Adoption: v1beta1.AdoptionAllow,
			ProviderSpec: &runtime.RawExtension{Raw: []byte(`{}`)}}}))
}

func TestAdoptPlansInstances(t *testing.T) {
	f := newOldFleet(t)
	f.adopt("workers").fails(t, "--class is required to create it")
	f.adopt("workers", "--class", "small").fails(t, "small")
	f.class("small", "fake")
	f.adopt("workers", "--class", "small", "--name", "[").fails(t, `--name "["`)
	f.adopt("workers", "--class", "small", "--selector", "pool").fails(t, `--selector "pool": write KEY=VALUE`)
	f.adopt("workers", "--class", "small", "--name", "worker-*", "--selector", "cluster=a", "--network", "net",
		"--group-by", "pool").succeeds(t).prints(t, "instances without a machine, class small, to provider fake",
		"Nothing was changed. To adopt the instances:\n  machinist migrate run workers -n "+f.namespace)
	spec := f.migration("workers").Spec
	if in := spec.Instances; spec.Source != v1beta1.MigrationSourceInstances || spec.Provider != "fake" ||
		in.ClassRef.Name != "small" || !slices.Equal(in.Names, []string{"worker-*"}) || in.GroupBy != "pool" ||
		!slices.Equal(in.Networks, []string{"net"}) ||
		!maps.Equal(in.Metadata, map[string]v1beta1.MetadataValue{"cluster": "a"}) {
		t.Errorf("the Migration is %+v, instances %+v", spec, in)
	}

	f.adopt("workers", "--name", "worker-1").succeeds(t)
	in := f.migration("workers").Spec.Instances
	if !slices.Equal(in.Names, []string{"worker-1"}) || in.GroupBy != "pool" {
		t.Errorf("after a change of one flag, the instances are %+v", in)
	}
	f.run("run", "workers").succeeds(t).prints(t, "Adopted: Machinist manages all instances.",
		"# ends the adoption; this cannot be undone", "# gives the instances back")
	f.adopt("workers", "--name", "other").fails(t, "spec.instances of migration", "can no longer be changed")
	done := executeAt(t, env.Kubeconfig(), "workers\n", "migrate", "commit", "workers", "-n", f.namespace).succeeds(t)
	if !strings.Contains(done.err, "This is the point of no return: Machinist then scales") {
		t.Errorf("the question is %q", done.err)
	}

	f.plan().succeeds(t)
	f.adopt("old-fleet").fails(t, "takes over the fleet of cluster.k8s.io")
}

// The API server refuses a Migration whose source and instances do not match.
func TestMigrationWithInstancesNeedsTheirSource(t *testing.T) {
	f := newOldFleet(t)
	for source, instances := range map[string]*v1beta1.MigrationInstances{
		v1beta1.MigrationSourceInstances: nil,
		"cluster.k8s.io":                 {ClassRef: v1beta1.LocalRef{Name: "small"}},
	} {
		err := f.api.Create(context.Background(), &v1beta1.Migration{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "wrong"},
			Spec:       v1beta1.MigrationSpec{Source: source, Provider: "fake", Instances: instances}})
		if err == nil || !strings.Contains(err.Error(), "spec.instances") {
			t.Errorf("source %s: the API server answers %v", source, err)
		}
	}
}
