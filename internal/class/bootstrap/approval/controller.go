package approval

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	// reportAfter is how long a request must be pending before it is reported. Another approver may approve it in the
	// meantime.
	reportAfter = 10 * time.Second
	// kubeletWait is how long a kubelet waits for a serving certificate before it sends a new request.
	kubeletWait = 15 * time.Minute
)

// Options are what a Reconciler works with.
type Options struct {
	// Provider is the name of the provider of this process. Requests for Machines of other providers are ignored.
	Provider string
	// ClusterID is the cluster ID in the tags of this installation's instances.
	ClusterID string
	// Machines reads Machines from the control cluster's cache. The cache has the index by node name.
	Machines client.Reader
	// Live reads from the control cluster without a cache, and writes the condition CertificateApproved of Machines.
	Live client.Client
	// Cache reads Nodes and CertificateSigningRequests from the target cluster's cache.
	Cache client.Reader
	// Target reads token Secrets from the target cluster without a cache, and approves requests.
	Target client.Client
	// Classes finds the credentials for calls to the provider.
	Classes Classes
	// Cloud is the driver, behind the rate limit and the metrics.
	Cloud Cloud
	// Recorder records events on Machines.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// GuestRanges are the ranges in which serving certificates are approved for addresses that only the guest reports.
	GuestRanges []netip.Prefix
	// Concurrency is the number of requests that are processed at the same time, for each of Signers. The default is 8.
	Concurrency int
}

// Cloud is the part of provider.Driver that finds the names and addresses of instances.
type Cloud interface {
	Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error)
}

// Classes resolves the class of a Machine.
type Classes interface {
	// ResolveForDeletion returns as much of the class as still exists: a missing class is not an error.
	ResolveForDeletion(ctx context.Context, m *v1beta1.Machine) (resolve.Resolved, error)
}

// Reconciler approves certificate requests for which Decide returns an approval.
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

// Reconcile processes one request.
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
	if request.Kind == kubeletcsr.NotKubelet {
		return reconcile.Result{}, nil
	}
	facts, err := r.gather(ctx, request)
	if err != nil {
		return reconcile.Result{}, err
	}
	decision := request.decide(facts)
	var retryAfter time.Duration
	if decision.Reason == ReasonInstanceNotKnown {
		// Only the provider's answer is missing for an approval.
		retryAfter = r.addReported(ctx, &facts)
		decision = request.decide(facts)
	}
	if decision.Approve {
		// Caches can be outdated by any amount of time. A Machine that has been deleted or has joined since then must not
		// give an identity to the requester.
		if decision, err = r.confirm(ctx, request, facts); err != nil {
			return reconcile.Result{}, err
		}
	}
	if decision.Approve {
		return r.approve(ctx, csr, decision)
	}
	return r.leavePending(ctx, csr, request, facts, decision, retryAfter)
}

// confirm decides again, with the Machine, the Node and the other Machines of the node name as they are on the API
// servers. Another Machine may be missing in the cache. If it has joined, its Node shows that. If it has not joined, it
// does not take precedence.
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
		if facts.OtherMachine, err = r.liveOtherMachine(ctx, name, live); err != nil {
			return Decision{}, err
		}
	}
	if facts.Node, err = nodeFrom(ctx, r.Target, name); err != nil {
		return Decision{}, err
	}
	return request.decide(facts), nil
}

// approve approves the request as it was read. If the request has changed, the API server rejects the approval.
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
		// Another client has changed the request, so its event will arrive. The requeue is only a safeguard.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("approve CertificateSigningRequest %s: %w", csr.Name, err)
	}
	log.Info("Approved the certificate request of a kubelet", "why", v.Message)
	return reconcile.Result{}, r.clearCondition(ctx, csr.Name)
}

// leavePending leaves the request pending, and reports that if the decision requires it. retryAfter is when the
// provider can be asked for addresses again.
func (r *Reconciler) leavePending(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, request request,
	facts Facts, v Decision, retryAfter time.Duration) (reconcile.Result, error) {
	log := logf.FromContext(ctx).WithValues("requester", csr.Spec.Username, "signer", csr.Spec.SignerName,
		"reason", v.Reason)
	now := r.Clock.Now()
	age := now.Sub(csr.CreationTimestamp.Time)
	result := reconcile.Result{}
	if retryAfter > 0 && age < kubeletWait {
		result.RequeueAfter = retryAfter
	}
	if !v.Report {
		log.V(1).Info("Left the certificate request of a kubelet pending", "why", v.Message)
		return result, nil
	}
	if wait := reportAfter - age; wait > 0 {
		result.RequeueAfter = wait
		return result, nil
	}
	machine, err := r.machineToReport(ctx, request, facts)
	if machine == nil || err != nil {
		return result, err
	}
	if err := r.setCondition(ctx, csr, machine, v); err != nil {
		return reconcile.Result{}, err
	}
	if r.state.firstReport(report{machine.UID, v.Reason}, now) {
		log.Info("Left the certificate request of a kubelet pending", "why", v.Message,
			"machine", client.ObjectKeyFromObject(machine))
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, EventReason, "Approve",
			"CertificateSigningRequest %s is left pending (%s): %s.", csr.Name, v.Reason, v.Message)
	}
	return result, nil
}

// machineToReport returns the Machine of this provider on which a pending request is reported, or nil if there is none.
// It is the Machine whose instance sent the request. If that is unknown, it is the Machine that the certificate is
// requested for.
func (r *Reconciler) machineToReport(ctx context.Context, request request, facts Facts) (*v1beta1.Machine, error) {
	m := facts.Machine
	if m == nil && request.Wanted != "" {
		machines, err := r.machinesByNodeName(ctx, request.Wanted)
		if err != nil {
			return nil, err
		}
		for i := range machines {
			if machines[i].DeletionTimestamp.IsZero() && servedBy(r.Provider, &machines[i]) {
				m = machines[i].DeepCopy()
				break
			}
		}
	}
	if m == nil || !servedBy(r.Provider, m) {
		return nil, nil
	}
	return m, nil
}

// addReported adds what the provider reports about the instance. It uses an earlier answer while that is valid. It
// returns when to ask the provider again if the answer is not sufficient for an approval.
func (r *Reconciler) addReported(ctx context.Context, facts *Facts) (retryAfter time.Duration) {
	m, now := facts.Machine, facts.Now
	known, ok := r.state.cachedAnswer(m, now)
	if !ok {
		reported, err := r.askProvider(ctx, m)
		known = answer{providerID: m.Spec.ProviderID, reported: reported, until: now.Add(answerValid)}
		switch {
		case err != nil:
			// Keep the error until the retry is due, because other requests also call this provider.
			known.until = now.Add(max(answerRetry, provider.RetryAfter(err)))
			logf.FromContext(ctx).Error(err, "Cannot get the name and the addresses of a machine's instance from the provider",
				"machine", client.ObjectKeyFromObject(m))
		case !hasIP(reported.Addresses) && !hasIP(reported.GuestAddresses):
			// The kubelet has an IP address, because it sent the request. The cloud does not report it yet.
			known.until = now.Add(answerRetry)
		}
		r.state.storeAnswer(m.UID, known, now)
	}
	facts.Reported = known.reported
	return known.until.Sub(now)
}

// reportedBy returns what the cloud reports about an instance. If it has no addresses, they are not known.
func reportedBy(instance *provider.Instance) *Reported {
	reported := &Reported{NodeName: instance.NodeName, GuestAddresses: instance.GuestAddresses}
	if len(instance.AllAddresses()) > 0 {
		reported.Addresses = append([]corev1.NodeAddress{}, instance.Addresses...)
	}
	return reported
}

// hasIP reports whether the addresses include an IP address.
func hasIP(addresses []corev1.NodeAddress) bool {
	return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP
	})
}

// askProvider asks the provider about the instance.
func (r *Reconciler) askProvider(ctx context.Context, m *v1beta1.Machine) (*Reported, error) {
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
		return nil, fmt.Errorf("get the instance from the provider: %w", err)
	case instance.MachineUID != "" && instance.MachineUID != m.UID:
		return nil, errors.New("the tags of the provider's instance name another machine")
	}
	return reportedBy(instance), nil
}
