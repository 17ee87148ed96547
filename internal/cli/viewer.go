package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/cli/preview"
	"machinist.dev/machinist/internal/cli/timeline"
	"machinist.dev/machinist/internal/cli/ui"
	"machinist.dev/machinist/internal/cli/why"
)

// viewer is the source of the fleet view. The viewer uses the code of the commands, so the fleet view and the
// commands show the same.
type viewer struct {
	// cachedCluster reads from caches, and liveCluster reads from the API server. Neither client can write.
	cachedCluster, liveCluster *Cluster
	client                     *viewerClient
	transport                  *viewerTransport
	scope                      scope
	context                    string
	changed                    chan struct{}
}

func (e *Env) newViewer(ctx context.Context, s scope) (*viewer, error) {
	v := &viewer{scope: s, changed: make(chan struct{}, 1)}
	var err error
	if v.liveCluster, err = e.connect(func(host string) func(http.RoundTripper) http.RoundTripper {
		v.transport = newViewerTransport(host, e.Now)
		return v.transport.wrap
	}); err != nil {
		return nil, err
	}
	if raw, err := e.clientConfig().RawConfig(); err == nil {
		v.context = raw.CurrentContext
		if e.overrides.CurrentContext != "" {
			v.context = e.overrides.CurrentContext
		}
	}
	v.client, err = newViewerClient(ctx, v.liveCluster.config, v.liveCluster.WithWatch, s.namespace(v.liveCluster), e.Now, v.signalChange)
	if err != nil {
		return nil, v.liveCluster.Explain(err)
	}
	cached := *v.liveCluster
	cached.WithWatch, cached.withoutSecrets = v.client, true
	v.cachedCluster = &cached
	return v, nil
}

func (v *viewer) signalChange() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// ChangeEvents implements ui.Source.
func (v *viewer) ChangeEvents() <-chan struct{} { return v.changed }

// Outage implements ui.Source.
func (v *viewer) Outage() (time.Time, string) { return v.transport.outage() }

// Scope implements ui.Source.
func (v *viewer) Scope() ui.Scope {
	return ui.Scope{Namespace: v.scope.namespace(v.liveCluster), Context: v.context, Server: v.liveCluster.server}
}

// Facts implements ui.Source.
func (v *viewer) Facts(ctx context.Context) (fleet.Facts, error) {
	namespace := v.scope.namespace(v.liveCluster)
	found, err := v.cachedCluster.readFleet(ctx, namespace)
	if err != nil {
		return fleet.Facts{}, err
	}
	for _, resource := range v.transport.deniedNow() {
		found.unread = append(found.unread, fmt.Sprintf("You may no longer list %s, so their state on this page may be outdated.", resource))
	}
	return v.cachedCluster.facts(ctx, found, namespace, v.scope.system), nil
}

func (v *viewer) explainer(namespace string) *explainer {
	cluster := *v.cachedCluster
	cluster.Namespace = namespace
	return &explainer{Cluster: &cluster, system: v.scope.system, listEvents: v.client.eventsOf}
}

// WhyMachine implements ui.Source.
func (v *viewer) WhyMachine(ctx context.Context, m *v1beta1.Machine) why.View {
	return v.explainer(m.Namespace).machineWhy(ctx, m)
}

// WhyDeployment implements ui.Source.
func (v *viewer) WhyDeployment(ctx context.Context, key types.NamespacedName) (why.View, error) {
	return v.explainer(key.Namespace).deploymentWhy(ctx, key.Name)
}

// Events implements ui.Source.
func (v *viewer) Events(ctx context.Context, m *v1beta1.Machine) ([]why.Event, string) {
	found, err := v.client.eventsOf(ctx, m)
	switch {
	case apierrors.IsForbidden(err):
		return nil, "You may not list events, so they are left out."
	case err != nil:
		return nil, fmt.Sprintf("The events could not be read: %v", v.liveCluster.Explain(err))
	}
	events := make([]why.Event, 0, len(found))
	for i := range found {
		events = append(events, eventOf(&found[i]))
	}
	return events, ""
}

// Timeline implements ui.Source.
func (v *viewer) Timeline(ctx context.Context, m *v1beta1.Machine, events []why.Event, unread bool) timeline.Timeline {
	return v.explainer(m.Namespace).timelineOf(ctx, m, events, unread)
}

// Orphans implements ui.Source.
func (v *viewer) Orphans(ctx context.Context) (fleet.Orphans, error) {
	return v.cachedCluster.orphans(ctx, v.scope.namespace(v.liveCluster), v.scope.system)
}

func (v *viewer) Plan(ctx context.Context, manifest string) ([]*preview.Plan, error) {
	all := documents{classes: map[[2]string]bool{}}
	if err := all.decode([]byte(manifest), "the manifest"); err != nil {
		return nil, err
	}
	if len(all.deployments) == 0 {
		return nil, errors.New("the manifest contains no MachineDeployment")
	}
	plans, err := v.liveCluster.plan(ctx, all, v.scope.namespace(v.liveCluster) != "")
	if err != nil {
		return nil, err
	}
	return plans.Items, nil
}

var _ ui.Source = (*viewer)(nil)
