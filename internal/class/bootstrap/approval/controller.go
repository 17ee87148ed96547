package approval

import (
	"context"
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
	// reportAfter is how old a pending request must be to be reported. Another approver may approve it earlier.
	reportAfter = 10 * time.Second
	// kubeletWait is how long a kubelet waits for a serving certificate before it sends another request. A joining
	// kubelet repeats the same request until its token expires.
	kubeletWait = 15 * time.Minute
)

// Options are the settings and the dependencies of a Reconciler.
type Options struct {
	// Provider is the name of this process's provider. Requests for Machines of other providers are ignored.
	Provider string
	// ClusterID is the cluster ID in the tags of this installation's instances.
	ClusterID string
	// Machines reads Machines from a cache of the control cluster with the index MachineByNodeName.
	Machines client.Reader
	// LiveClient reads from the API server of the control cluster, and writes the condition CertificateApproved of
	// Machines.
	LiveClient client.Client
	// Cache is the cached reader for Nodes and CertificateSigningRequests of the target cluster.
	Cache client.Reader
	// Target reads bootstrap tokens from the API server of the target cluster, and approves requests.
	Target client.Client
	// Classes returns the class of a Machine, with the credentials for driver calls.
	Classes Classes
	// Cloud is the driver, wrapped by the rate limit and the metrics.
	Cloud Cloud
	// Recorder records events on Machines.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// GuestRanges are the IP ranges in which addresses that only the guest reports may get a serving certificate.
	GuestRanges []netip.Prefix
	// ReservedNames are names and addresses for which no serving certificate is approved, in addition to those of the
	// Service kubernetes and of its endpoints in the target cluster.
	ReservedNames ReservedNames
	// Concurrency is how many requests of each signer are processed at a time. Defaults to 8.
	Concurrency int
}

// Cloud is the part of provider.Driver that returns the name and the addresses of an instance.
type Cloud interface {
	Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error)
}

// Classes resolves the class of a Machine.
type Classes interface {
	// ResolveForDeletion returns what still exists of the class. A missing class is not an error.
	ResolveForDeletion(ctx context.Context, m *v1beta1.Machine) (resolve.Inputs, error)
}

// Reconciler approves the certificate requests that Decide allows.
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
	if err != nil || !kubeletcsr.IsPending(csr) || !csr.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, r.clearCondition(ctx, req.Name)
	}
	request := readRequest(csr)
	if request.Kind == kubeletcsr.KindNotKubelet {
		return reconcile.Result{}, nil
	}
	facts, err := r.gather(ctx, request)
	if err != nil {
		return reconcile.Result{}, err
	}
	decision := request.decide(facts)
	var retryAfter time.Duration
	if decision.Reason == ReasonInstanceNotKnown {
		// The decision needs only the provider's information, so ask now.
		retryAfter = r.addReported(ctx, &facts)
		decision = request.decide(facts)
	}
	if decision.Approve {
		// The caches may be outdated. A Machine that was deleted or has joined meanwhile must not get a certificate.
		if decision, err = r.confirm(ctx, request, facts); err != nil {
			return reconcile.Result{}, err
		}
	}
	if decision.Approve {
		return r.approve(ctx, csr, decision)
	}
	return r.leavePending(ctx, csr, request, facts, decision, retryAfter)
}

// confirm repeats the decision with live reads of the Machine, the Node, and the other Machines with the node name.
// For a serving certificate, it also reads the addresses of the API servers. The cache may lack another Machine with
// the node name, which does no harm. If that Machine has joined, its Node prevents the approval. If that Machine has
// not joined, the older facts.Machine takes precedence.
func (r *Reconciler) confirm(ctx context.Context, request request, facts Facts) (Decision, error) {
	live := &v1beta1.Machine{}
	err := r.LiveClient.Get(ctx, client.ObjectKeyFromObject(facts.Machine), live)
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return Decision{}, fmt.Errorf("read machine %s before approving its certificate: %w",
			client.ObjectKeyFromObject(facts.Machine), err)
	}
	facts.Machine, facts.Now = live, r.Clock.Now()
	name := request.Requester
	if request.Kind == kubeletcsr.KindJoin {
		name = request.RequestedNode
		if facts.OtherMachine, err = r.liveOtherMachine(ctx, name, live); err != nil {
			return Decision{}, err
		}
	}
	if facts.Node, err = nodeFrom(ctx, r.Target, name); err != nil {
		return Decision{}, err
	}
	if request.Kind == kubeletcsr.KindServing {
		switch facts.ReservedNames, err = facts.ReservedNames.withAPIServers(ctx, r.Target); {
		case apierrors.IsForbidden(err):
			return refuse(ReasonReservedAddress, "the provider may not read which addresses the API servers have. Allow it to get the "+
				"Service and the EndpointSlice kubernetes in the namespace default of the target cluster, as the roles of this "+
				"release do"), nil
		case err != nil:
			return Decision{}, err
		}
	}
	return request.decide(facts), nil
}

// approve approves the request. The API server rejects the approval if the request has changed since it was read.
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
		// A change by another client triggers an event. The requeue is only a safeguard.
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("approve CertificateSigningRequest %s: %w", csr.Name, err)
	}
	log.Info("Approved the certificate request of a kubelet", "why", v.Message)
	return reconcile.Result{}, r.clearCondition(ctx, csr.Name)
}

// leavePending leaves the request undecided, and reports it if the decision requires that. retryAfter is when the
// provider may be asked again.
func (r *Reconciler) leavePending(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, request request,
	facts Facts, v Decision, retryAfter time.Duration) (reconcile.Result, error) {
	log := logf.FromContext(ctx).WithValues("requester", csr.Spec.Username, "signer", csr.Spec.SignerName,
		"reason", v.Reason)
	now := r.Clock.Now()
	age := now.Sub(csr.CreationTimestamp.Time)
	result := reconcile.Result{}
	if retryAfter > 0 && (age < kubeletWait || request.Kind == kubeletcsr.KindJoin) {
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

// machineToReport returns the Machine on which to report a pending request, or nil. If the sender's Machine is
// unknown, the result is the Machine of the requested node name.
func (r *Reconciler) machineToReport(ctx context.Context, request request, facts Facts) (*v1beta1.Machine, error) {
	m := facts.Machine
	if m == nil && request.RequestedNode != "" {
		machines, err := r.machinesByNodeName(ctx, request.RequestedNode)
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

// addReported adds the provider's information about the instance to the facts. A valid earlier answer is used again. If
// the answer is not enough, retryAfter is when the provider may be asked again.
func (r *Reconciler) addReported(ctx context.Context, facts *Facts) (retryAfter time.Duration) {
	m, now := facts.Machine, facts.Now
	known, ok := r.state.cachedAnswer(m, now)
	if !ok {
		reported, err := r.askProvider(ctx, m)
		known = answer{providerID: m.Spec.ProviderID, reported: reported, until: now.Add(answerValid)}
		switch {
		case err != nil:
			// Do not call the provider again before the requested delay, even if another request arrives earlier.
			known.until = now.Add(max(answerRetry, provider.RetryAfter(err)))
			logf.FromContext(ctx).Error(err, "Cannot get the name and the addresses of a machine's instance from the provider",
				"machine", client.ObjectKeyFromObject(m))
		case !hasIP(reported.Addresses) && !hasIP(reported.GuestAddresses),
			reported.NodeName == "" && m.Status.Instance != nil && m.Status.Instance.NodeName != "":
			// The answer lacks the node name or the IP addresses. The instance has a node name and addresses, because
			// its kubelet sent the request. The cloud will probably report the missing data later.
			known.until = now.Add(answerRetry)
		}
		r.state.storeAnswer(m.UID, known, now)
	}
	facts.ReportedInstance = known.reported
	return known.until.Sub(now)
}

// reportedBy returns the name and addresses that the cloud reports. If the cloud reports no addresses, Addresses is
// nil, which means that the addresses are unknown.
func reportedBy(instance *provider.Instance) *ReportedInstance {
	reported := &ReportedInstance{NodeName: instance.NodeName, GuestAddresses: instance.GuestAddresses}
	if len(instance.AllAddresses()) > 0 {
		reported.Addresses = append([]corev1.NodeAddress{}, instance.Addresses...)
	}
	return reported
}

func hasIP(addresses []corev1.NodeAddress) bool {
	return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP
	})
}

func (r *Reconciler) askProvider(ctx context.Context, m *v1beta1.Machine) (*ReportedInstance, error) {
	inputs, err := r.Classes.ResolveForDeletion(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("resolve the machine's class: %w", err)
	}
	req := provider.GetRequest{
		Machine: provider.Machine{Namespace: m.Namespace, Name: m.Name, UID: m.UID},
		Class:   inputs.Class(), ClusterID: r.ClusterID, ProviderID: m.Spec.ProviderID, CreateHandle: m.CreateHandle(),
	}
	if m.Status.Instance != nil {
		req.Scope = m.Status.Instance.Scope
	}
	instance, err := r.Cloud.Get(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("get the instance from the provider: %w", err)
	}
	if err := instance.OwnedBy(r.ClusterID, req.Machine); err != nil {
		return nil, fmt.Errorf("check the tags of the provider's instance: %w", err)
	}
	return reportedBy(instance), nil
}
