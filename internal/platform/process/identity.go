package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"machinist.dev/machinist/internal/platform/sharding"
)

const (
	// IdentityRecord is the ConfigMap that remembers the cluster id.
	IdentityRecord = "machinist-cluster-id"
	// IdentityOfAll is the key in it of an installation for all namespaces; one for a single namespace has that as its
	// key, which can contain no dot.
	IdentityOfAll = "all.namespaces"
)

// identity is who this installation is at the cloud.
type identity struct {
	id       string
	recorded string
	// record is where that is; only its name and UID count.
	record *corev1.ConfigMap
}

func (i identity) mismatch() error {
	if i.id == i.recorded {
		return nil
	}
	return fmt.Errorf("the cluster id is %q, but Machinist first ran here as %q: set --cluster-id to the latter, or delete the ConfigMap %s if no instance of it is left", i.id, i.recorded, IdentityRecord)
}

// identify finds out the cluster id and records it the first time. It writes before the process is the leader, which is
// harmless: whoever comes second finds the first one's record.
func identify(ctx context.Context, core coreclient.CoreV1Interface, c *Config, namespace string) (identity, error) {
	id := c.ClusterID
	if id == "" {
		ns, err := core.Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return identity{}, fmt.Errorf("read namespace %s, whose UID is the default of --cluster-id: %w",
				metav1.NamespaceSystem, err)
		}
		id = string(ns.UID)
		if c.Namespace != "" {
			id += "/" + c.Namespace
		}
	}
	key := IdentityOfAll
	if c.Namespace != "" {
		key = c.Namespace
	}
	record, err := core.ConfigMaps(namespace).Get(ctx, IdentityRecord, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		record = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: IdentityRecord, Namespace: namespace},
			Data: map[string]string{key: id}}
		if record, err = core.ConfigMaps(namespace).Create(ctx, record, metav1.CreateOptions{}); err != nil {
			return identity{}, fmt.Errorf("record the cluster id in ConfigMap %s/%s: %w", namespace, IdentityRecord,
				c.explainNamespace(err, namespace))
		}
	case err != nil:
		return identity{}, fmt.Errorf("read the recorded cluster id in ConfigMap %s/%s: %w", namespace, IdentityRecord,
			c.explainNamespace(err, namespace))
	case record.Data[key] == "":
		if record.Data == nil {
			record.Data = map[string]string{}
		}
		record.Data[key] = id
		if _, err := core.ConfigMaps(namespace).Update(ctx, record, metav1.UpdateOptions{}); err != nil {
			return identity{}, fmt.Errorf("record the cluster id in ConfigMap %s/%s: %w", namespace, IdentityRecord,
				c.explainNamespace(err, namespace))
		}
	}
	where := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: record.Name, Namespace: record.Namespace,
		UID: record.UID}}
	return identity{id: id, recorded: record.Data[key], record: where}, nil
}

// rolesNamespace is the namespace in which the Roles of config/rbac give the right to the lease and to the record.
const rolesNamespace = "machinist-system"

// explainNamespace adds what to do about a namespace in which the process may not work: mostly nobody chose it.
func (c *Config) explainNamespace(err error, namespace string) error {
	if !apierrors.IsForbidden(err) || namespace == rolesNamespace {
		return err
	}
	return fmt.Errorf("%w. The process keeps its lease and this record in the namespace %s; the Roles in config/rbac allow that in %s only: "+
		"run with --leader-election-namespace=%[3]s, or bind such Roles in %[2]s", err, namespace, rolesNamespace)
}

// identify finds out and keeps the identity of this process.
func (o *Process) identify(ctx context.Context) error {
	found, err := identify(ctx, o.core, &o.config, o.namespace)
	if err != nil {
		return err
	}
	before := o.identity.Swap(&found)
	mismatch := found.mismatch()
	if mismatch == nil {
		o.gauge.Set(0)
		return nil
	}
	o.gauge.Set(1)
	if before == nil || before.mismatch() == nil || before.recorded != found.recorded {
		o.log.Error(mismatch, "Orphaned instances are left alone")
	}
	return nil
}

// keepIdentity checks the record periodically while this process leads, and creates it again if it was deleted:
// otherwise the next process with another cluster id would find nothing to compare its own with.
func (o *Process) keepIdentity(ctx context.Context) error {
	tick := time.NewTicker(o.config.StatusCheckPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		request, cancel := context.WithTimeout(ctx, o.config.StatusCheckTimeout)
		err := o.identify(request)
		if err == nil {
			err = o.recordHeldLeases(request)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			o.log.Error(err, "Cannot find out whether the cluster id and the lease are still recorded")
		}
	}
}

// IdentityRecord returns the ConfigMap in which the cluster id is recorded, with its name and UID only, for events
// about it. It is nil before the call of Run's setup function.
func (o *Process) IdentityRecord() *corev1.ConfigMap {
	if i := o.identity.Load(); i != nil {
		return i.record
	}
	return nil
}

// Namespace returns the only namespace of the control cluster that this installation works in; empty means all.
func (o *Process) Namespace() string { return o.config.Namespace }

// Shard returns the part of all namespaces that this process serves.
func (o *Process) Shard() sharding.Shard { return o.config.Shard() }

// mismatchGauge returns the metric of an identity mismatch, the one that is registered already if there is one.
func mismatchGauge(registerer prometheus.Registerer) (prometheus.Gauge, error) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "machinist_cluster_id_mismatch",
		Help: "1 while the cluster id differs from the one recorded when Machinist first ran here; orphaned instances are then left alone.",
	})
	err := registerer.Register(gauge)
	if err == nil {
		return gauge, nil
	}
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := registered.ExistingCollector.(prometheus.Gauge); ok {
			return existing, nil
		}
	}
	return nil, fmt.Errorf("register metric machinist_cluster_id_mismatch: %w", err)
}
