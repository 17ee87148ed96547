package admission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/api/v1beta1"
)

// CoreWebhook is the webhook for the core kinds.
type CoreWebhook struct {
	decoder admission.Decoder
	// cache contains the classes, sets and deployments. liveReader reads directly from the API server.
	cache, liveReader client.Reader
	clock             clock.PassiveClock
	// Simultaneous reads of the same class share one request. readRate limits the reads of all classes.
	reads    singleflight.Group
	readRate *rate.Limiter
	// ServerVersion returns the version of the target cluster's API server, or "" if it is unknown. It is nil if there
	// is no target cluster.
	ServerVersion func(context.Context) string
	// RemediationKinds are the kinds of remediations that the manager may create.
	RemediationKinds []schema.GroupKind
}

// NewCoreWebhook returns the handler of the manager's webhook. The scheme must have the core kinds. The handler reads
// objects from the cache. If a class is not in the cache, the handler reads the class from the API server, because
// the class may be new.
func NewCoreWebhook(scheme *runtime.Scheme, cache, live client.Reader) *CoreWebhook {
	return &CoreWebhook{decoder: admission.NewDecoder(scheme), cache: cache, liveReader: live, clock: clock.RealClock{},
		readRate: rate.NewLimiter(readsPerSecond, readsAtOnce)}
}

// Handle answers one request.
func (c *CoreWebhook) Handle(ctx context.Context, r admission.Request) admission.Response {
	switch r.Kind.Kind {
	case "MachineDeployment":
		return review(c.decoder, r, func(d *v1beta1.MachineDeployment, _ bool) Result {
			return ValidateDeployment(d, c.environment(ctx, r.Namespace))
		})
	case "MachineSet":
		return review(c.decoder, r, func(m *v1beta1.MachineSet, _ bool) Result {
			return ValidateSet(m, c.environment(ctx, r.Namespace))
		})
	case "Machine":
		return review(c.decoder, r, func(m *v1beta1.Machine, created bool) Result {
			return ValidateMachine(m, created, Environment{Class: c.classes(ctx, r.Namespace),
				ServerVersion: c.serverVersion(ctx)})
		})
	case "MachineHealthCheck":
		return review(c.decoder, r, func(h *v1beta1.MachineHealthCheck, _ bool) Result {
			return ValidateHealthCheck(h, c.RemediationKinds)
		})
	case "MachineDisruptionBudget":
		return review(c.decoder, r, func(b *v1beta1.MachineDisruptionBudget, _ bool) Result {
			return ValidateBudget(b, c.clock.Now())
		})
	case "MachineClass":
		return review(c.decoder, r, func(m *v1beta1.MachineClass, _ bool) Result { return ValidateClass(m) })
	}
	return admission.Allowed("")
}

type object[T any] interface {
	*T
	client.Object
}

func review[T any, P object[T]](decoder admission.Decoder, r admission.Request,
	validate func(o P, created bool) Result) admission.Response {
	now, before := P(new(T)), P(new(T))
	if err := decoder.Decode(r, now); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if now.GetDeletionTimestamp() != nil {
		return admission.Allowed("")
	}
	created := len(r.OldObject.Raw) == 0
	result := validate(now, created)
	if !created && len(result.Errors) > 0 {
		if err := decoder.DecodeRaw(r.OldObject, before); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		result = result.newSince(validate(before, false))
	}
	return answer(r, result)
}

// answer returns the response for a validation result. Errors become the API error Invalid, whose causes name the
// fields.
func answer(r admission.Request, v Result) admission.Response {
	response := admission.Allowed("")
	slices.SortFunc(v.Errors, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	slices.Sort(v.Warnings)
	if len(v.Errors) > 0 {
		kind := v1beta1.GroupVersion.WithKind(r.Kind.Kind).GroupKind()
		status := apierrors.NewInvalid(kind, r.Name, v.Errors).Status()
		response.Allowed, response.Result = false, &status
	}
	return response.WithWarnings(v.Warnings...)
}

const (
	// liveTimeout limits a read from the API server. It must be much shorter than the timeout of the webhook.
	liveTimeout = time.Second
	// readsPerSecond and readsAtOnce are the rate and the burst of reads from the API server. Any client that reaches
	// the webhook can name classes that do not exist.
	readsPerSecond, readsAtOnce = 10, 50
)

var errManyReads = errors.New("too many requests for classes that are not in the cache")

// classes returns a function that looks up a class. A placement has many classes, so all live reads of a request
// together must begin within liveTimeout.
func (c *CoreWebhook) classes(ctx context.Context, namespace string) func(string) (*v1beta1.MachineClass, bool) {
	deadline := c.clock.Now().Add(liveTimeout)
	return func(name string) (*v1beta1.MachineClass, bool) {
		class, key := &v1beta1.MachineClass{}, client.ObjectKey{Namespace: namespace, Name: name}
		err := c.cache.Get(ctx, key, class)
		if apierrors.IsNotFound(err) && c.clock.Now().Before(deadline) {
			class, err = c.liveClass(ctx, key)
		}
		if err != nil {
			// The class is unknown, so assume that it exists and allows adoption.
			class = &v1beta1.MachineClass{}
			class.Name, class.Spec.Adoption = name, v1beta1.AdoptionAllow
		}
		return class, class != nil
	}
}

// liveClass reads a class from the API server. The result is nil if the class does not exist. Callers share the result
// and must not change it.
func (c *CoreWebhook) liveClass(ctx context.Context, key client.ObjectKey) (*v1beta1.MachineClass, error) {
	found, err, _ := c.reads.Do(key.String(), func() (any, error) {
		if !c.readRate.AllowN(c.clock.Now(), 1) {
			return (*v1beta1.MachineClass)(nil), errManyReads
		}
		// Other requests wait for this read too. Therefore the read continues if the request that started the read is
		// canceled.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveTimeout)
		defer cancel()
		// The manager may list classes, but not get them.
		list := &v1beta1.MachineClassList{}
		byName := client.MatchingFields{metav1.ObjectNameField: key.Name}
		if err := c.liveReader.List(ctx, list, client.InNamespace(key.Namespace), byName); err != nil ||
			len(list.Items) == 0 {
			return (*v1beta1.MachineClass)(nil), err
		}
		return &list.Items[0], nil
	})
	class, _ := found.(*v1beta1.MachineClass)
	return class, err
}

// serverVersion returns a function for the version of the target cluster's API server. The function is nil if there is
// no target cluster.
func (c *CoreWebhook) serverVersion(ctx context.Context) func() string {
	if c.ServerVersion == nil {
		return nil
	}
	return func() string {
		ctx, cancel := context.WithTimeout(ctx, liveTimeout)
		defer cancel()
		return c.ServerVersion(ctx)
	}
}

func (c *CoreWebhook) environment(ctx context.Context, namespace string) Environment {
	s := Environment{Class: c.classes(ctx, namespace), ServerVersion: c.serverVersion(ctx)}
	deployments, sets := &v1beta1.MachineDeploymentList{}, &v1beta1.MachineSetList{}
	if c.cache.List(ctx, deployments, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) == nil {
		for i := range deployments.Items {
			d := &deployments.Items[i]
			if d.DeletionTimestamp != nil {
				continue
			}
			s.Claims = append(s.Claims, Claim{"MachineDeployment", d.Name, &d.Spec.Selector, d.Spec.Template.ObjectMeta.Labels})
		}
	}
	if c.cache.List(ctx, sets, client.InNamespace(namespace), client.UnsafeDisableDeepCopy) == nil {
		for i := range sets.Items {
			// An owned set has the selector of its deployment. Only standalone sets are added.
			if m := &sets.Items[i]; metav1.GetControllerOf(m) == nil && m.DeletionTimestamp == nil {
				s.Claims = append(s.Claims, Claim{"MachineSet", m.Name, &m.Spec.Selector, m.Spec.Template.ObjectMeta.Labels})
			}
		}
	}
	return s
}

// Result contains the errors and warnings about an object.
type Result struct {
	// Errors make the webhook refuse the object.
	Errors field.ErrorList
	// Warnings are shown to the client that writes the object.
	Warnings []string
}

func (v *Result) refuse(errors ...*field.Error) { v.Errors = append(v.Errors, errors...) }

func (v *Result) warn(path *field.Path, format string, args ...any) {
	v.Warnings = append(v.Warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

// newSince removes the errors that the object already had before the update. So an object with an existing error can
// still be changed.
func (v Result) newSince(former Result) Result {
	v.Errors = slices.DeleteFunc(v.Errors, func(e *field.Error) bool {
		return slices.ContainsFunc(former.Errors, func(f *field.Error) bool { return f.Error() == e.Error() })
	})
	return v
}
