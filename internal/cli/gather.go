package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/why"
)

const (
	managerProcess  = "machinist-manager"
	providerProcess = "machinist-provider-"
)

type fleetLists struct {
	machines    v1beta1.MachineList
	sets        v1beta1.MachineSetList
	deployments v1beta1.MachineDeploymentList
	checks      v1beta1.MachineHealthCheckList
	classes     v1beta1.MachineClassList
	budgets     v1beta1.MachineDisruptionBudgetList
	secrets     []metav1.PartialObjectMetadata
	unread      []string
}

// readFleet lists all objects of the fleets in a namespace. Machines are required. Other kinds are omitted if the user
// may not list them, or if only a provider is installed.
func (c *Cluster) readFleet(ctx context.Context, namespace string) (*fleetLists, error) {
	l := &fleetLists{}
	if err := c.List(ctx, &l.machines, client.InNamespace(namespace)); err != nil {
		return nil, c.Explain(err)
	}
	for _, more := range []struct {
		what string
		list client.ObjectList
	}{{"deployments", &l.deployments}, {"sets", &l.sets}, {"health checks", &l.checks}, {"classes", &l.classes},
		{"disruption budgets", &l.budgets}} {
		switch err := c.List(ctx, more.list, client.InNamespace(namespace)); {
		case err == nil, meta.IsNoMatchError(err), isUnknownResource(err):
		case apierrors.IsForbidden(err):
			l.unread = append(l.unread, fmt.Sprintf("You may not list %s, so they are left out.", more.what))
		default:
			return nil, c.Explain(err)
		}
	}
	if c.withoutSecrets {
		return l, nil
	}
	return l, c.readSecrets(ctx, l)
}

// readSecrets adds Secrets that are being deleted although a class uses them. readSecrets reads only metadata.
func (c *Cluster) readSecrets(ctx context.Context, l *fleetLists) error {
	seen := map[client.ObjectKey]bool{}
	for i := range l.classes.Items {
		for _, name := range resolve.SecretNames(&l.classes.Items[i]) {
			key := client.ObjectKey{Namespace: l.classes.Items[i].Namespace, Name: name}
			if seen[key] {
				continue
			}
			seen[key] = true
			secret := metav1.PartialObjectMetadata{}
			secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			switch err := c.Get(ctx, key, &secret); {
			case err == nil && secret.DeletionTimestamp != nil:
				l.secrets = append(l.secrets, secret)
			case err == nil, apierrors.IsNotFound(err):
			case apierrors.IsForbidden(err):
				l.unread = append(l.unread, "You may not read Secrets, so Secrets that are being deleted are left out.")
				return nil
			default:
				return c.Explain(err)
			}
		}
	}
	return nil
}

// facts returns the input of the views: the objects, and the state of the processes that serve them.
func (c *Cluster) facts(ctx context.Context, l *fleetLists, namespace, system string) fleet.Facts {
	f := fleet.Facts{
		Namespace: namespace, Deployments: l.deployments.Items, Sets: l.sets.Items, Machines: l.machines.Items,
		Checks: l.checks.Items, Classes: l.classes.Items, Budgets: l.budgets.Items, Secrets: l.secrets,
		Processes: []why.Process{}, ReadErrors: slices.Clone(l.unread),
	}
	var names []string
	for i := range l.machines.Items {
		if p := providerOf(&l.machines.Items[i]); p != "" && !slices.Contains(names, providerProcess+p) {
			names = append(names, providerProcess+p)
		}
	}
	slices.Sort(names)
	if len(f.Deployments)+len(f.Sets) > 0 {
		names = append([]string{managerProcess}, names...)
	}
	for _, name := range names {
		p, unread := c.process(ctx, name, namespace, system)
		if f.Processes = append(f.Processes, p); unread != "" && !slices.Contains(f.ReadErrors, unread) {
			f.ReadErrors = append(f.ReadErrors, unread)
		}
	}
	f.Now = c.clock.Now()
	return f
}

func providerOf(m *v1beta1.Machine) string {
	switch {
	case m.Labels[v1beta1.LabelProvider] != "":
		return m.Labels[v1beta1.LabelProvider]
	case m.Status.Instance != nil && m.Status.Instance.Provider != "":
		return m.Status.Instance.Provider
	}
	return m.Spec.Provider
}

const systemNamespaceUsage = "namespace of the leases of Machinist's processes; by default machinist-system, kube-system and the machines' namespace are tried"

// systemNamespaces returns the namespaces to search for leases and records of the processes. The flag
// --system-namespace limits the search to a single namespace. The default includes the namespace of the objects,
// because a process can be limited to that namespace, and then stores its lease there.
func systemNamespaces(system, namespace string) []string {
	if system != "" {
		return []string{system}
	}
	spaces := []string{"machinist-system", "kube-system"}
	if namespace != "" && !slices.Contains(spaces, namespace) {
		spaces = append(spaces, namespace)
	}
	return spaces
}

// process finds out from a Lease whether a Machinist process runs. If the Lease cannot be read, the result unread
// explains why.
func (c *Cluster) process(ctx context.Context, name, namespace, system string) (p why.Process, unread string) {
	p.Name = name
	var denied []string
	var failed error
	for _, space := range systemNamespaces(system, namespace) {
		for _, lease := range []string{name, name + "-" + namespace} {
			if lease == name+"-" {
				continue
			}
			found := &coordinationv1.Lease{}
			switch err := c.Get(ctx, client.ObjectKey{Namespace: space, Name: lease}, found); {
			case err == nil:
				if other := why.Judge(found, c.clock.Now()); !p.IsKnown || other.IsRunning ||
					p.LastRenewal == nil || other.LastRenewal != nil &&
					other.LastRenewal.After(*p.LastRenewal) && !p.IsRunning {
					p = other
				}
			case apierrors.IsNotFound(err):
			case !apierrors.IsForbidden(err):
				failed = cmp.Or(failed, err)
			case !slices.Contains(denied, space):
				denied = append(denied, space)
			}
		}
		if !slices.Contains(denied, space) {
			p.Searched = append(p.Searched, space)
		}
	}
	if p.IsKnown {
		p.Searched = nil
		return p, ""
	}
	switch {
	case len(denied) > 0:
		unread = fmt.Sprintf("You may not read leases in %s, so it is unknown whether the processes are running.",
			strings.Join(denied, ", "))
	case failed != nil:
		unread = fmt.Sprintf("Leases could not be read, so it is unknown whether the processes are running: %v", failed)
	default:
		return p, ""
	}
	p.Searched = nil
	return p, unread
}
