package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/internal/install/installer"
	"machinist.dev/machinist/test/env"
)

const namespace = "machinist-system"

func TestMain(m *testing.M) { os.Exit(env.Main(m, controlplane.Options{Audit: true})) }

// operate runs the operator until the test ends, with only the permissions of its roles.
func operate(t *testing.T, c client.WithWatch) {
	t.Helper()
	for _, object := range roles(t) {
		if err := c.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	config, err := env.ControlPlane().UserConfig(installer.Name, "machinist-processes")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	process := defaultConfig()
	process.ControlKubeconfig, process.LeaderElectionNamespace = kubeconfig, namespace
	process.HealthProbeBindAddress, process.MetricsBindAddress = "0", "0"
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, process, logr.Discard()) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the operator ended with: %v", err)
			}
		case <-time.After(env.Patience):
			t.Error("the operator does not end")
		}
	})
}

// roles returns the namespace and the roles of the operator, and the bindings of these roles to the operator's user.
func roles(t *testing.T) []client.Object {
	t.Helper()
	text, err := os.ReadFile("../../config/rbac/operator-control.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: installer.Name}}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		role := &unstructured.Unstructured{}
		if err := decoder.Decode(&role.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if role.Object == nil {
			continue
		}
		at := metav1.ObjectMeta{Namespace: role.GetNamespace(), Name: role.GetName()}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.GetKind(), Name: role.GetName()}
		objects = append(objects, role)
		if role.GetKind() == "ClusterRole" {
			objects = append(objects, &rbacv1.ClusterRoleBinding{ObjectMeta: at, RoleRef: ref, Subjects: subjects})
		} else {
			objects = append(objects, &rbacv1.RoleBinding{ObjectMeta: at, RoleRef: ref, Subjects: subjects})
		}
	}
}

func awaitInstalled(t *testing.T, c client.WithWatch, name string) *v1beta1.Provider {
	t.Helper()
	list := env.Await(t, c, &v1beta1.ProviderList{}, "the installation of "+name,
		func(l *v1beta1.ProviderList) (bool, string) {
			at := slices.IndexFunc(l.Items, func(p v1beta1.Provider) bool { return p.Name == name })
			if at < 0 {
				return false, "no such Provider"
			}
			p := &l.Items[at]
			return p.Status.ObservedGeneration == p.Generation && len(p.Status.Installed) > 0 &&
				meta.IsStatusConditionFalse(p.Status.Conditions, v1beta1.ConditionDegraded), fmt.Sprintf("%+v", p.Status)
		})
	return &list.Items[slices.IndexFunc(list.Items, func(p v1beta1.Provider) bool { return p.Name == name })]
}

// The operator installs the chart in all configurations with only the permissions of its role. The API server rejects a
// role with permissions that its creator lacks.
//
// Rules: operator-may-install, nothing-written-when-as-desired.
func TestOperatorInstallsChartWithItsOwnPermissions(t *testing.T) {
	c := env.Client(t)
	log, err := auditlog.Open(env.ControlPlane().AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	operate(t, c)
	for name, spec := range map[string]v1beta1.ProviderSpec{
		"sim":       {Type: "sim", ExtraArgs: []string{"--cloud-endpoint=http://simcloud:8080"}},
		"azure":     {Type: "azure", Target: v1beta1.ProviderTarget{None: true}, Values: values(`{"networkPolicy":{"enabled":true}}`)},
		"openstack": {Type: "openstack", ExtraArgs: []string{"--openstack-auth-url=https://identity.example.com/v3"}},
		"libvirt":   {Type: "libvirt", ExtraArgs: []string{"--libvirt-host=hypervisor.example.com"}},
		"vsphere":   {Type: "vsphere", ExtraArgs: []string{"--vsphere-vcenter=lab=https://vcenter.example.com"}},
		"acme": {Type: "acme", Image: v1beta1.ProviderImage{Repository: "acme"}, WatchNamespace: "default",
			Values: values(`{"clusterID":"acme-1","webhook":{"enabled":false},"resources":{"requests":{"cpu":"1000m"}}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
			if err := c.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			p = awaitInstalled(t, c, name)
			for _, ref := range p.Status.Installed {
				if object := read(t, c, ref); object == nil || !metav1.IsControlledBy(object, p) {
					t.Errorf("%s %s does not exist, or does not belong to the Provider", ref.Kind, ref.Name)
				}
			}

			// A changed annotation causes a pass of the operator, but no write.
			if err := log.Mark(); err != nil {
				t.Fatal(err)
			}
			for _, ref := range p.Status.Installed {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/touched":"yes"}}}`))
				if err := c.Patch(t.Context(), read(t, c, ref), patch); err != nil {
					t.Fatal(err)
				}
			}
			by := auditlog.Filter{Users: []string{installer.Name}}
			awaitPass(t, log, by, p.Status.Process)
			counts, err := log.Count(by)
			if err != nil {
				t.Fatal(err)
			}
			if counts.Writes+counts.Conflicts+counts.Failed != 0 {
				t.Errorf("passes over unchanged objects wrote: %s", counts)
			}

			if err := c.Delete(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			env.Await(t, c, &v1beta1.ProviderList{}, "no Provider", func(l *v1beta1.ProviderList) (bool, string) {
				return len(l.Items) == 0, fmt.Sprint(len(l.Items))
			})
			for _, ref := range p.Status.Installed {
				if object := read(t, c, ref); object != nil && object.GetDeletionTimestamp() == nil {
					t.Errorf("%s %s still exists", ref.Kind, ref.Name)
				}
			}
		})
	}
	requireNothingDenied(t)
}

func requireNothingDenied(t *testing.T) {
	t.Helper()
	log, err := auditlog.Open(env.ControlPlane().AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	requests, err := log.Requests(auditlog.Filter{Users: []string{installer.Name}})
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) < 100 {
		t.Errorf("the log has %d requests of the operator only", len(requests))
	}
	for _, r := range requests {
		if r.Denied {
			t.Errorf("denied: %s %s/%s %s/%s", r.Verb, r.Group, r.Resource, r.Namespace, r.Name)
		}
	}
}

// Rule: spec-becomes-chart-values.
func TestChartRefusesUnknownValueWithItsPath(t *testing.T) {
	_, err := render(installer.Release{Name: "machinist-provider-sim", Namespace: namespace,
		Values: map[string]any{"provider": map[string]any{"name": "sim"}, "webhook": map[string]any{"enabeld": true}}})
	if err == nil || !strings.Contains(err.Error(), "webhook") || !strings.Contains(err.Error(), "enabeld") {
		t.Errorf("got %v", err)
	}
}

// awaitPass waits until the operator has read the Lease of a process, which is the last step of a pass.
func awaitPass(t *testing.T, log *auditlog.Log, by auditlog.Filter, process string) {
	t.Helper()
	deadline, tick := time.After(env.Patience), time.NewTicker(50*time.Millisecond)
	defer tick.Stop()
	for {
		requests, err := log.Requests(by)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(requests, func(r auditlog.Request) bool {
			return r.Resource == "leases" && strings.HasPrefix(r.Name, process)
		}) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("no pass after %d requests", len(requests))
		case <-tick.C:
		}
	}
}

func values(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func read(t *testing.T, c client.Client, ref v1beta1.InstalledObject) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(ref.APIVersion)
	object.SetKind(ref.Kind)
	switch err := c.Get(t.Context(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, object); {
	case client.IgnoreNotFound(err) != nil:
		t.Fatal(err)
	case err != nil:
		return nil
	}
	return object
}
