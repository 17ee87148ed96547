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
	// IdentityRecord is the name of the ConfigMap that records the cluster ID.
	IdentityRecord = "machinist-cluster-id"
	// IdentityOfAll is the key in the ConfigMap for an installation in all namespaces. An installation in one namespace
	// uses the name of the namespace, which cannot contain a dot.
	IdentityOfAll = "all.namespaces"
)

type identity struct {
	id       string
	recorded string
	record   *corev1.ConfigMap
}

func (i identity) mismatch() error {
	if i.id == i.recorded {
		return nil
	}
	return fmt.Errorf("the cluster ID is %q, but %q was recorded when Machinist first ran here: set --cluster-id to %[2]q, or delete the ConfigMap %[3]s if no instance with that ID is left", i.id, i.recorded, IdentityRecord)
}

// identify determines the cluster ID, and records it if there is no record yet. The function may write before the
// process is the leader, because later processes keep an existing record.
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
			return identity{}, fmt.Errorf("record the cluster ID in ConfigMap %s/%s: %w", namespace, IdentityRecord,
				c.explainNamespace(err, namespace))
		}
	case err != nil:
		return identity{}, fmt.Errorf("read the recorded cluster ID in ConfigMap %s/%s: %w", namespace, IdentityRecord,
			c.explainNamespace(err, namespace))
	case record.Data[key] == "":
		if record.Data == nil {
			record.Data = map[string]string{}
		}
		record.Data[key] = id
		if _, err := core.ConfigMaps(namespace).Update(ctx, record, metav1.UpdateOptions{}); err != nil {
			return identity{}, fmt.Errorf("record the cluster ID in ConfigMap %s/%s: %w", namespace, IdentityRecord,
				c.explainNamespace(err, namespace))
		}
	}
	where := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: record.Name, Namespace: record.Namespace,
		UID: record.UID}}
	return identity{id: id, recorded: record.Data[key], record: where}, nil
}

// rolesNamespace is the namespace in which the Roles of config/rbac grant access to the Lease and the record.
const rolesNamespace = "machinist-system"

// explainNamespace adds advice to an error if the process has no rights in a namespace. The namespace is usually a
// default that the administrator did not choose.
func (c *Config) explainNamespace(err error, namespace string) error {
	if !apierrors.IsForbidden(err) || namespace == rolesNamespace {
		return err
	}
	return fmt.Errorf("%w. The process keeps its Lease and this record in the namespace %s. The Roles in config/rbac allow this only in %s: "+
		"run with --leader-election-namespace=%[3]s, or bind the same Roles in %[2]s", err, namespace, rolesNamespace)
}

func (p *Process) identify(ctx context.Context) error {
	found, err := identify(ctx, p.core, &p.config, p.namespace)
	if err != nil {
		return err
	}
	before := p.identity.Swap(&found)
	mismatch := found.mismatch()
	if mismatch == nil {
		p.gauge.Set(0)
		return nil
	}
	p.gauge.Set(1)
	if before == nil || before.mismatch() == nil || before.recorded != found.recorded {
		p.log.Error(mismatch, "Orphaned instances are not removed")
	}
	return nil
}

// keepIdentity checks the record periodically while this process leads, and recreates a deleted record. Without the
// record, the next process could not detect a changed cluster ID.
func (p *Process) keepIdentity(ctx context.Context) error {
	tick := time.NewTicker(p.config.StatusCheckPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		request, cancel := context.WithTimeout(ctx, p.config.StatusCheckTimeout)
		err := p.identify(request)
		if err == nil {
			err = p.recordHeldLeases(request)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			p.log.Error(err, "Cannot check whether the cluster ID and the Lease are still recorded")
		}
	}
}

// IdentityRecord returns the ConfigMap with the cluster ID, as the object of events. The ConfigMap contains only the
// name and the UID, and is nil until Run calls the setup function.
func (p *Process) IdentityRecord() *corev1.ConfigMap {
	if i := p.identity.Load(); i != nil {
		return i.record
	}
	return nil
}

// Namespace returns the only namespace of the control cluster in which this installation works. Empty means all.
func (p *Process) Namespace() string { return p.config.Namespace }

// Shard returns the namespaces that this process serves.
func (p *Process) Shard() sharding.Shard { return p.config.Shard() }

func mismatchGauge(registerer prometheus.Registerer) (prometheus.Gauge, error) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "machinist_cluster_id_mismatch",
		Help: "1 while the cluster ID differs from the one that was recorded when Machinist first ran here. Meanwhile, orphaned instances are not removed.",
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
