package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	simdriver "machinist.dev/machinist/simcloud/driver"
)

const (
	namespace  = "default"
	deployment = "bench"
	classOne   = "one"
	classTwo   = "two"
	classThree = "three"
	classFour  = "four"
)

// fleet is the deployment whose machines are measured.
type fleet struct {
	c client.Client
	// placed distributes the machines over three domains with one class each. A rollout then changes the version instead
	// of the class.
	placed bool
}

// userData has a realistic size. userData contains no bootstrap token, because the bench does not measure the
// registration of nodes.
const userData = `#cloud-config
hostname: <<MACHINE_NAME>>
write_files:
  - path: /etc/kubernetes/bootstrap-kubeconfig
    permissions: "0600"
    content: |
      apiVersion: v1
      kind: Config
      clusters:
        - name: target
          cluster:
            server: <<API_ENDPOINT>>
            certificate-authority-data: <<CA_BUNDLE_BASE64>>
`

func (f fleet) create(ctx context.Context, surge string) error {
	labels := map[string]string{"pool": deployment}
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}}
	d.Spec.Replicas = ptr.To[int32](0)
	d.Spec.Selector.MatchLabels = labels
	d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{MaxSurge: ptr.To(intstr.Parse(surge)),
		MaxUnavailable: ptr.To(intstr.FromInt32(0))}
	d.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": deployment, v1beta1.LabelTypeVersion: "v1beta1"}
	d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: classOne}
	if f.placed {
		d.Spec.Template.Spec.ClassRef, d.Spec.Placement = nil, &v1beta1.Placement{}
		for _, name := range []string{classOne, classTwo, classThree} {
			d.Spec.Placement.Domains = append(d.Spec.Placement.Domains, v1beta1.PlacementDomain{Name: "zone-" + name,
				Options: []v1beta1.PlacementOption{{ClassName: name}}})
		}
	}
	d.Spec.Template.Spec.Version = "v1.36.3"
	d.Spec.Template.Spec.Node.Labels = labels
	objects := []client.Object{
		secret("bench-credentials", "token", "0123456789abcdef"), secret("bench-user-data", "userData", userData),
		class(classOne), class(classTwo), class(classThree), class(classFour), d,
	}
	for _, o := range objects {
		if err := f.c.Create(ctx, o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func secret(name, key, value string) *corev1.Secret {
	labels := map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseBoth}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		StringData: map[string]string{key: value}}
}

func class(name string) *v1beta1.MachineClass {
	c := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Spec.Provider = simdriver.Name
	c.Spec.ProviderSpec = &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"bench.machinist.dev/v1","kind":"BenchMachine","instanceType":%q}`, name)}
	c.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "bench-credentials"}
	c.Spec.UserDataRef = &v1beta1.UserDataRef{Name: "bench-user-data"}
	return c
}

func (f fleet) patch(ctx context.Context, patch string) error {
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}}
	return f.c.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (f fleet) scale(ctx context.Context, replicas int) error {
	return f.patch(ctx, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (f fleet) rollTo(ctx context.Context, class string) error {
	if f.placed {
		return f.patch(ctx, `{"spec":{"template":{"spec":{"version":"v1.37.0"}}}}`)
	}
	return f.patch(ctx, fmt.Sprintf(`{"spec":{"template":{"spec":{"classRef":{"name":%q}}}}}`, class))
}

// await waits until all machines of the deployment are available and up to date. With 0 replicas, it waits until no
// Machine exists. The interval is long, so that polling does not affect the measurement. The exact times are in the
// audit log.
func (f fleet) await(ctx context.Context, replicas int, timeout time.Duration, alive func() error) error {
	begun := time.Now()
	for {
		d := &v1beta1.MachineDeployment{}
		if err := f.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deployment}, d); err != nil {
			return fmt.Errorf("get the deployment: %w", err)
		}
		want := int32(replicas)
		s := d.Status
		if s.ObservedGeneration == d.Generation && s.Replicas == want && s.UpdatedReplicas == want &&
			s.AvailableReplicas == want {
			left, err := f.count(ctx)
			if err != nil {
				return err
			}
			if left == replicas {
				return nil
			}
		}
		if err := alive(); err != nil {
			return err
		}
		if time.Since(begun) > timeout {
			return fmt.Errorf("after %s the deployment is not at %d machines: %+v", timeout, replicas, s)
		}
		if !pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// count counts Machines without reading the objects.
func (f fleet) count(ctx context.Context) (int, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	if err := f.c.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return 0, fmt.Errorf("count the machines: %w", err)
	}
	n := len(list.Items)
	if list.RemainingItemCount != nil {
		n += int(*list.RemainingItemCount)
	}
	return n, nil
}
