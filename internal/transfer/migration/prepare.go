package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// The phases before anything of Machinist's is made: Planning, Fencing, Settling.

// makePlan reads the old system, the cloud and what is ours.
func (p *pass) makePlan(ctx context.Context) (*plan, *ours, nodes, error) {
	m := p.migration
	mine, err := readOurs(ctx, p.Control, m)
	if err != nil {
		return nil, nil, nodes{}, err
	}
	var reader client.Reader
	if p.Target != nil {
		reader = p.Target
	}
	all, err := readNodes(ctx, reader)
	if err != nil {
		return nil, nil, nodes{}, err
	}
	flags := source.Flags{}
	for name, value := range m.Spec.ProcessFlags {
		flags[strings.TrimLeft(name, "-")] = string(value)
	}
	planner := &planner{migration: m, system: p.system, flags: flags, cloud: p.Cloud, ours: mine, nodes: all,
		secrets: &secretReader{live: p.Control, seen: map[string]content{}}}
	made, err := planner.make(ctx, func(visit func(source.Role, *unstructured.Unstructured)) error {
		return eachOld(ctx, p.Control, p.system, m.SourceNamespaceOrDefault(), false, visit)
	})
	if err != nil {
		return nil, nil, nodes{}, err
	}
	hooks, err := readWebhooks(ctx, p.Control, p.system.Group())
	if err != nil {
		return nil, nil, nodes{}, err
	}
	hooks.report(&made.findings)
	m.Status.Machines = v1beta1.MigrationCounts{Total: int32(len(made.machines)), Old: int32(made.old),
		Copied: int32(len(mine.ofMigration())), Adopted: countAdopted(mine, all)}
	return made, mine, all, nil
}

// agreed reports whether nothing is in the way of the plan, and says in Planned what is.
func (p *pass) agreed(made *plan) bool {
	blocking := made.findings.blocking(p.migration.Spec.Accept)
	if agreed := p.migration.Spec.PlanHash; agreed != "" && agreed != made.hash {
		blocking = append(blocking, fmt.Sprintf("spec.planHash is %s, and the plan is %s now: read it again", agreed,
			made.hash))
	}
	if len(blocking) > 0 {
		p.condition(v1beta1.ConditionPlanned, false, v1beta1.ReasonBlocked,
			fmt.Sprintf("%s: %s", wording.Count(len(blocking), "reason"), strings.Join(blocking, "; ")))
		return false
	}
	p.condition(v1beta1.ConditionPlanned, true, v1beta1.ReasonPlanReady, "")
	return true
}

func (p *pass) planning(ctx context.Context) error {
	m := p.migration
	p.again = p.Timing.Replan
	made, mine, _, err := p.makePlan(ctx)
	if err != nil {
		p.condition(v1beta1.ConditionPlanned, false, v1beta1.ReasonPlanUnknown, withRemedy(err))
		return err
	}
	if err := p.overlaps(ctx, made); err != nil {
		return err
	}
	if err := p.secretNames(ctx, made, mine); err != nil {
		return err
	}
	if err := p.dryRun(ctx, made, mine); err != nil {
		return err
	}
	if err := p.publish(ctx, made); err != nil {
		return err
	}
	m.Status.PlanHash, m.Status.Findings = made.hash, made.findings.summary()
	if !p.agreed(made) || m.Spec.Stage == v1beta1.MigrationPlan {
		return nil
	}
	if err := p.keep(ctx); err != nil {
		return err
	}
	return p.enter(v1beta1.MigrationFencing)
}

// overlaps finds older Migrations of the same fleet, and those that stop the same old controllers: the first to end
// would start these for the other.
func (p *pass) overlaps(ctx context.Context, made *plan) error {
	m := p.migration
	all := &v1beta1.MigrationList{}
	if err := p.Control.List(ctx, all); err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	wide := slices.ContainsFunc(p.system.Kinds(), func(k source.Kind) bool { return k.ClusterScoped })
	for i := range all.Items {
		other := &all.Items[i]
		same := other.Spec.Source == m.Spec.Source &&
			(wide || other.SourceNamespaceOrDefault() == m.SourceNamespaceOrDefault())
		if other.UID == m.UID || other.Status.Phase.Ended() || m.CreationTimestamp.Before(&other.CreationTimestamp) ||
			m.CreationTimestamp.Equal(&other.CreationTimestamp) && m.UID < other.UID {
			continue
		}
		if same {
			made.findings.addf(provider.FindingBlocker, CodeOverlaps, "Migration/"+m.Name, "",
				"Migration %s takes the same fleet over and is older. Delete one of them.", client.ObjectKeyFromObject(other))
		} else if shared := stoppedByBoth(m, other); shared != "" {
			made.findings.addf(provider.FindingBlocker, CodeOverlaps, "Migration/"+m.Name, "spec.fence",
				"Migration %s stops %s as well and is older. Complete or abort it first, or delete one of them.",
				client.ObjectKeyFromObject(other), shared)
		}
	}
	return nil
}

// stoppedByBoth names a workload or Lease of the fences of two Migrations, empty if they have none in common.
func stoppedByBoth(a, b *v1beta1.Migration) string {
	for _, w := range a.Spec.Fence.Workloads {
		if slices.Contains(b.Spec.Fence.Workloads, w) {
			return fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name)
		}
	}
	systems := source.Systems()
	if systems[a.Spec.Source] == nil || systems[b.Spec.Source] == nil {
		return ""
	}
	others := leasesOf(b, systems[b.Spec.Source])
	for _, lease := range leasesOf(a, systems[a.Spec.Source]) {
		if slices.Contains(others, lease) {
			return fmt.Sprintf("Lease %s/%s", lease.Namespace, lease.Name)
		}
	}
	return ""
}

// secretNames looks for Secrets of others with the names of ours. Unlike other objects they are not read for the plan.
func (p *pass) secretNames(ctx context.Context, made *plan, mine *ours) error {
	for _, class := range made.classes {
		for _, secret := range class.secrets {
			other := &corev1.Secret{}
			err := p.Control.Get(ctx, client.ObjectKeyFromObject(secret), other)
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return fmt.Errorf("read Secret %s: %w", secret.Name, err)
			case !mine.made(other):
				made.findings.addf(provider.FindingBlocker, CodeNameTaken, "Secret/"+secret.Name, "",
					"A Secret of that name exists in namespace %s. Delete or rename it.", secret.Namespace)
			}
		}
	}
	return nil
}

// dryRun asks the API server whether it would take what is new.
func (p *pass) dryRun(ctx context.Context, made *plan, mine *ours) error {
	for _, object := range made.manifests() {
		if mine.find(object) != nil {
			continue
		}
		err := p.Control.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
			made.findings.addf(provider.FindingBlocker, CodeRefused, kindOf(object)+"/"+object.GetName(), "", "%s", err.Error())
		default:
			return fmt.Errorf("ask whether %s %s can be made: %w", kindOf(object), object.GetName(), err)
		}
	}
	return nil
}

// chunkBytes is how much one ConfigMap of findings or manifests has.
const chunkBytes = 600 << 10

// publish writes findings and converted objects to ConfigMaps for people.
func (p *pass) publish(ctx context.Context, made *plan) error {
	m := p.migration
	var manifests strings.Builder
	for _, object := range made.manifests() {
		data, err := completed(object)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", kindOf(object), object.GetName(), err)
		}
		manifests.WriteString("---\n" + string(data))
	}
	chunks := []map[string]string{}
	for _, text := range chunksOf(made.findings.text(), "\n") {
		chunks = append(chunks, map[string]string{"findings.txt": text})
	}
	for _, text := range chunksOf(manifests.String(), "---\n") {
		chunks = append(chunks, map[string]string{"manifests.yaml": text})
	}
	for i, data := range chunks {
		if err := p.configMap(ctx, fmt.Sprintf("machinist-migration-%s-%d", m.Name, i), data); err != nil {
			return err
		}
	}
	existing := &corev1.ConfigMapList{}
	if err := p.Control.List(ctx, existing, client.InNamespace(m.Namespace),
		client.MatchingLabels{v1beta1.LabelMigration: m.Name}); err != nil {
		return fmt.Errorf("list the ConfigMaps of the plan: %w", err)
	}
	for i := range existing.Items {
		var number int
		_, err := fmt.Sscanf(existing.Items[i].Name, "machinist-migration-"+m.Name+"-%d", &number)
		if err != nil || number < len(chunks) {
			continue
		}
		if err := client.IgnoreNotFound(p.Control.Delete(ctx, &existing.Items[i])); err != nil {
			return fmt.Errorf("remove the ConfigMap %s: %w", existing.Items[i].Name, err)
		}
	}
	return nil
}

func (p *pass) configMap(ctx context.Context, name string, data map[string]string) error {
	m := p.migration
	have := &corev1.ConfigMap{}
	err := p.Control.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, have)
	switch {
	case apierrors.IsNotFound(err):
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: name,
			Labels: map[string]string{v1beta1.LabelMigration: m.Name}}, Data: data}
		owner := metav1.NewControllerRef(m, v1beta1.GroupVersion.WithKind("Migration"))
		made.OwnerReferences = []metav1.OwnerReference{*owner}
		err = p.Control.Create(ctx, made)
	case err != nil || maps.Equal(have.Data, data):
	case !metav1.IsControlledBy(have, m):
		return fmt.Errorf("a ConfigMap %s of another owner is in the way of the plan", name)
	default:
		have.Data = data
		err = p.Control.Update(ctx, have)
	}
	if err != nil {
		return fmt.Errorf("write the ConfigMap %s: %w", name, err)
	}
	return nil
}

// chunksOf cuts a text where mark begins or a line ends.
func chunksOf(text, mark string) []string {
	var chunks []string
	for len(text) > chunkBytes {
		cut := strings.LastIndex(text[:chunkBytes], mark)
		if mark == "\n" {
			cut++
		}
		if cut <= 0 {
			cut = chunkBytes
		}
		chunks, text = append(chunks, text[:cut]), text[cut:]
	}
	if text != "" {
		chunks = append(chunks, text)
	}
	return chunks
}

func (p *pass) fencing(ctx context.Context) error {
	if stands, err := p.fenced(ctx, fenceScope{}); err != nil || !stands {
		return err
	}
	return p.enter(v1beta1.MigrationSettling)
}

// settling waits until what the old controllers asked the cloud for shows, and compares the plan with the one that was
// agreed to.
func (p *pass) settling(ctx context.Context) error {
	stands, err := p.fenced(ctx, fenceScope{})
	if err != nil || !stands || p.Clock.Since(p.fenceOf(p.migration).standing) < p.Cloud.CreateSettle() {
		return err
	}
	made, _, _, err := p.makePlan(ctx)
	if err != nil {
		return err
	}
	p.migration.Status.PlanHash, p.migration.Status.Findings = made.hash, made.findings.summary()
	if !p.agreed(made) {
		p.trouble("the plan has changed since it was agreed to: abort the migration and make another one, or undo " +
			"what changed")
		return nil
	}
	return p.enter(v1beta1.MigrationCopying)
}
