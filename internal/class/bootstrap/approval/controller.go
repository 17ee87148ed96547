package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"machinist.dev/machinist/internal/class/bootstrap/kubeletcsr"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// reportAfter is how long a request is pending before a person is reported: there may be another approver, and nobody
	// wants to hear of what it has approved a moment later.
	reportAfter = 10 * time.Second
	// patience is how long a kubelet waits for a serving certificate before it asks anew.
	patience = 15 * time.Minute
)

// Options are what a Reconciler works with.
type Options struct {
	// Provider is the name of the provider whose Machines are served.
	Provider string
	// ClusterID tags the instances of this installation.
	ClusterID string
	// Machines reads Machines from the control cluster's cache, by the index of node names too.
	Machines client.Reader
	// Live reads the control cluster itself, and writes the condition CertificateApproved of Machines.
	Live client.Client
	// Cache reads Nodes and CertificateSigningRequests from the target cluster's cache.
	Cache client.Reader
	// Target reads and writes the target cluster itself: token Secrets and approvals.
	Target client.Client
	// Classes finds the credentials for asking the provider.
	Classes Classes
	// Cloud is the driver, already behind the rate limit and the metrics.
	Cloud Cloud
	// Recorder records events on Machines.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Concurrency is the number of requests checked at once, for each of Signers. Default 8.
	Concurrency int
}

// Cloud tells the addresses of instances. It is the part of a provider.Driver that is used.
type Cloud interface {
	Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error)
}

// Classes finds what a Machine was made from.
type Classes interface {
	// ResolveForDeletion returns what is left of it: a missing class is no error.
	ResolveForDeletion(ctx context.Context, m *v1beta1.Machine) (resolve.Resolved, error)
}

// Reconciler approves what Decide says.
type Reconciler struct {
	Options
	tokens bootstrap.Tokens
	state  *state
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Concurrency <= 0 {
		o.Concurrency = 8
	}
	return &Reconciler{Options: o, tokens: bootstrap.Tokens{Client: o.Target}, state: newState()}
}

// Reconcile checks one request.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	err := r.Cache.Get(ctx, req.NamespacedName, csr)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err != nil || !kubeletcsr.Pending(csr) || !csr.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.clearCondition(ctx, req.Name)
	}
	request := readRequest(csr)
	if request.Kind == kubeletcsr.NoKubelet {
		return reconcile.Result{}, nil
	}
	facts, err := r.gather(ctx, request)
	if err != nil {
		return reconcile.Result{}, err
	}
	decision := request.decide(facts)
	var again time.Duration
	if decision.Reason == ReasonAddressesNotKnown {
		// Without addresses everything else was found to be right.
		again = r.addAddresses(ctx, &facts)
		decision = request.decide(facts)
	}
	if decision.Approve {
		// A cache may be late by any amount. Nobody gets an identity by a Machine that has meanwhile gone or joined.
		if decision, err = r.confirm(ctx, request, facts); err != nil {
			return reconcile.Result{}, err
		}
	}
	if decision.Approve {
		return r.approve(ctx, csr, decision)
	}
	return r.leave(ctx, csr, request, facts, decision, again)
}

// confirm decides once more with the Machine, the Node and the other Machines of that name as they are at the API
// servers. A Machine of that name which the cache does not have at all is seen by its Node, if it has joined, and has
// no better claim to the name if it has not.
func (r *Reconciler) confirm(ctx context.Context, request request, facts Facts) (Decision, error) {
	live := &v1beta1.Machine{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(facts.Machine), live)
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return Decision{}, fmt.Errorf("read machine %s before approving its certificate: %w",
			client.ObjectKeyFromObject(facts.Machine), err)
	}
	facts.Machine, facts.Now = live, r.Clock.Now()
	name := request.Requester
	if request.Kind == kubeletcsr.Join {
		name = request.Wanted
		if facts.OtherMachine, err = r.otherNow(ctx, name, live); err != nil {
			return Decision{}, err
		}
	}
	if facts.Node, err = nodeFrom(ctx, r.Target, name); err != nil {
		return Decision{}, err
	}
	return request.decide(facts), nil
}

// approve approves the request as it was read: if anything about it changed, the API server refuses.
func (r *Reconciler) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	v Decision) (reconcile.Result, error) {
	log := logf.FromContext(ctx).WithValues("requester", csr.Spec.Username, "signer", csr.Spec.SignerName,
		"reason", v.Reason)
	approved := csr.DeepCopy()
	now := metav1.NewTime(r.Clock.Now())
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: string(v.Reason), Message: v.Message, LastUpdateTime: now, LastTransitionTime: now,
	})
	patch := client.MergeFromWithOptions(csr, client.MergeFromWithOptimisticLock{})
	switch err := r.Target.SubResource("approval").Patch(ctx, approved, patch); {
	case apierrors.IsConflict(err):
		// Somebody decided about it; the event of that is on its way, and this is only the second safeguard.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("approve CertificateSigningRequest %s: %w", csr.Name, err)
	}
	log.Info("Approved a kubelet's certificate", "why", v.Message)
	return reconcile.Result{}, r.clearCondition(ctx, csr.Name)
}

// leave leaves the request pending, and tells those who should know. again is when new addresses may be had.
func (r *Reconciler) leave(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, request request,
	facts Facts, v Decision, again time.Duration) (reconcile.Result, error) {
	log := logf.FromContext(ctx).WithValues("requester", csr.Spec.Username, "signer", csr.Spec.SignerName,
		"reason", v.Reason)
	now := r.Clock.Now()
	age := now.Sub(csr.CreationTimestamp.Time)
	result := reconcile.Result{}
	if again > 0 && age < patience {
		result.RequeueAfter = again
	}
	if !v.Report {
		log.V(1).Info("Left a kubelet's certificate pending", "why", v.Message)
		return result, nil
	}
	if wait := reportAfter - age; wait > 0 {
		result.RequeueAfter = wait
		return result, nil
	}
	machine, err := r.concerned(ctx, request, facts)
	if machine == nil || err != nil {
		return result, err
	}
	if err := r.setCondition(ctx, csr, machine, v); err != nil {
		return reconcile.Result{}, err
	}
	if r.state.firstTelling(telling{machine.UID, v.Reason}, now) {
		log.Info("Left a kubelet's certificate pending", "why", v.Message, "machine", client.ObjectKeyFromObject(machine))
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, EventReason, "Approve",
			"CertificateSigningRequest %s is left pending (%s): %s.", csr.Name, v.Reason, v.Message)
	}
	return result, nil
}

// concerned returns the Machine of this provider that a request is about, nil if there is none: the one whose instance
// asks or, where nobody knows who asks, the one that the certificate would be for.
func (r *Reconciler) concerned(ctx context.Context, request request, facts Facts) (*v1beta1.Machine, error) {
	m := facts.Machine
	if m == nil && request.Wanted != "" {
		machines, err := r.machinesOf(ctx, request.Wanted)
		if err != nil {
			return nil, err
		}
		for i := range machines {
			if machines[i].DeletionTimestamp.IsZero() && serves(r.Provider, &machines[i]) {
				m = machines[i].DeepCopy()
				break
			}
		}
	}
	if m == nil || !serves(r.Provider, m) {
		return nil, nil
	}
	return m, nil
}

// addAddresses adds what the provider says of the instance's addresses, or said lately. It returns when to ask again if
// that is not enough for an approval.
func (r *Reconciler) addAddresses(ctx context.Context, facts *Facts) (again time.Duration) {
	uid, now := facts.Machine.UID, facts.Now
	known, ok := r.state.reading(uid, now)
	if !ok {
		addresses, err := r.askAddresses(ctx, facts.Machine)
		known = reading{addresses: addresses, until: now.Add(addressesFresh)}
		switch {
		case err != nil:
			// Another request must be the next attempt only when its time has come; who would retry at once is not the
			// only one who asks this provider.
			known = reading{until: now.Add(max(askAgain, provider.RetryAfter(err)))}
			logf.FromContext(ctx).Error(err, "Cannot find out the addresses of a machine", "machine",
				client.ObjectKeyFromObject(facts.Machine))
		case !hasIP(addresses):
			// The kubelet that asks has one: the cloud does not show it yet.
			if known.until = now.Add(askAgain); len(addresses) == 0 {
				known.addresses = nil
			}
		}
		r.state.remember(uid, known, now)
	}
	facts.Addresses = known.addresses
	return known.until.Sub(now)
}

// hasIP reports whether one of the addresses is no name.
func hasIP(addresses []corev1.NodeAddress) bool {
	return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP
	})
}

// askAddresses asks the provider. The answer is never nil without an error.
func (r *Reconciler) askAddresses(ctx context.Context, m *v1beta1.Machine) ([]corev1.NodeAddress, error) {
	inputs, err := r.Classes.ResolveForDeletion(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("resolve the machine's class: %w", err)
	}
	req := provider.GetRequest{
		Machine: provider.Machine{Namespace: m.Namespace, Name: m.Name, UID: m.UID},
		Class:   inputs.Class(), ClusterID: r.ClusterID, ProviderID: m.Spec.ProviderID,
	}
	if m.Status.Instance != nil {
		req.Scope = m.Status.Instance.Scope
	}
	instance, err := r.Cloud.Get(ctx, req)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the provider for the instance: %w", err)
	case instance.MachineUID != "" && instance.MachineUID != m.UID:
		return nil, errors.New("the provider's instance is tagged as another machine's")
	}
	return append([]corev1.NodeAddress{}, instance.Addresses...), nil
}
