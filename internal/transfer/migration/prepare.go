package migration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// This file has the phases Planning, Fencing and Settling, before Machinist's objects are created.

// makePlan reads the old objects, the instances, Machinist's objects and the Nodes, and computes the plan.
func (p *pass) makePlan(ctx context.Context) (*plan, *ownObjects, nodes, error) {
	m := p.migration
	own, err := readOwnObjects(ctx, p.Control, m)
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
	planner := &planner{migration: m, system: p.system, cloud: p.Cloud, own: own, nodes: all,
		resolve: p.classOf, redactor: &p.redactor, secrets: &secretReader{live: p.Control,
			source: m.SourceNamespaceOrDefault(), sharedNamespaces: p.SharedNamespaces, seen: map[string]content{}}}
	plan, err := planner.build(ctx, func(visit func(source.Role, *unstructured.Unstructured)) error {
		return eachOld(ctx, p.Control, p.system, m.SourceNamespaceOrDefault(), false, visit)
	})
	if err != nil {
		return nil, nil, nodes{}, err
	}
	if err := p.linkedError(); err != nil {
		return nil, nil, nodes{}, err
	}
	if plan.isEmpty() {
		if err := p.reportEmpty(ctx, plan); err != nil {
			return nil, nil, nodes{}, err
		}
	}
	hooks, err := readWebhooks(ctx, p.Control, p.system.Group())
	if err != nil {
		return nil, nil, nodes{}, err
	}
	hooks.report(&plan.findings)
	plan.findings.redact(&p.redactor)
	m.Status.Machines = v1beta1.MigrationCounts{Total: int32(len(plan.machines)), Old: int32(plan.oldMachines),
		Copied: int32(len(own.migratedMachines())), Adopted: countAdopted(own, all)}
	return plan, own, all, nil
}

// reportEmpty reports that there is nothing to migrate, and in which namespaces old objects are.
func (p *pass) reportEmpty(ctx context.Context, plan *plan) error {
	found := map[string]bool{}
	err := eachOld(ctx, p.Control, p.system, "", false, func(role source.Role, object *unstructured.Unstructured) {
		if role != source.RoleClass && role != source.RoleHealthCheck && role != source.RoleOther {
			found[object.GetNamespace()] = true
		}
	})
	delete(found, p.migration.SourceNamespaceOrDefault())
	where := fmt.Sprintf("No other namespace has old objects of %s. Check --source.", p.system.Group())
	namespaces := slices.Sorted(maps.Keys(found))
	switch {
	case apierrors.IsForbidden(err):
		where = "The migrator may not read other namespaces. Check --source and --source-namespace."
	case err != nil:
		return err
	case len(namespaces) > 0:
		where = fmt.Sprintf("Old objects are in these namespaces: %s. Delete this Migration, and plan another one "+
			"with --source-namespace.", strings.Join(namespaces[:min(len(namespaces), maxNamespaces)], ", "))
	}
	plan.findings.addf(provider.FindingBlocker, CodeNothingFound, "Migration/"+p.migration.Name,
		"spec.sourceNamespace", "The namespace %s has no old object that can be migrated. %s", p.migration.SourceNamespaceOrDefault(), where)
	return nil
}

// maxNamespaces limits the namespaces that a finding names.
const maxNamespaces = 5

// isAgreed reports whether the migration may start: the plan has no obstacle, and spec.planHash is the hash of this
// plan. If the migration may not start, the condition Planned gets the reasons.
func (p *pass) isAgreed(plan *plan) bool {
	blocking := plan.findings.obstacles(p.migration.Spec.Accept)
	if agreed := p.migration.Spec.PlanHash; agreed != "" && agreed != plan.hash {
		blocking = append(blocking, fmt.Sprintf("the plan has changed from %s, to which you agreed, to %s. "+
			"Undo what changed, or abort this migration and create another one", agreed, plan.hash))
	}
	if len(blocking) > 0 {
		text := strings.Join(blocking, "; ")
		if len(blocking) > 1 {
			text = fmt.Sprintf("%d reasons: %s", len(blocking), text)
		}
		p.condition(v1beta1.ConditionPlanned, false, v1beta1.ReasonBlocked, text)
		return false
	}
	p.condition(v1beta1.ConditionPlanned, true, v1beta1.ReasonPlanReady, "")
	return true
}

func (p *pass) runPlanning(ctx context.Context) error {
	m := p.migration
	p.requeueAfter = p.Timing.Replan
	p.watchOldObjects(ctx, m, p.system)
	start := p.Clock.Now()
	plan, err := p.checkedPlan(ctx)
	p.planned(m, start, err)
	if err != nil {
		return err
	}
	p.storePlan(plan)
	if !p.isAgreed(plan) || m.Spec.Stage == v1beta1.MigrationPlan {
		return nil
	}
	if err := p.ensureFinalizer(ctx); err != nil {
		return err
	}
	return p.enter(v1beta1.MigrationFencing)
}

// checkedPlan makes a plan, adds the findings of checks in the control cluster, and publishes the plan.
func (p *pass) checkedPlan(ctx context.Context) (*plan, error) {
	plan, own, _, err := p.makePlan(ctx)
	if err != nil {
		p.condition(v1beta1.ConditionPlanned, false, v1beta1.ReasonPlanUnknown, withRemedy(err))
		return nil, err
	}
	if err := p.checkOverlaps(ctx, plan); err != nil {
		return nil, err
	}
	if err := p.checkWorkloads(ctx, plan); err != nil {
		return nil, err
	}
	if err := p.checkSecretNames(ctx, plan, own); err != nil {
		return nil, err
	}
	if err := p.dryRun(ctx, plan, own); err != nil {
		return nil, err
	}
	return plan, p.publish(ctx, plan)
}

// storePlan updates the plan in the status. The time changes only together with the plan, so an unchanged plan
// causes no write.
func (p *pass) storePlan(plan *plan) {
	status, summary := &p.migration.Status, plan.findings.summary()
	if status.PlanTime == nil || status.PlanHash != plan.hash || !equality.Semantic.DeepEqual(status.Findings, summary) {
		status.PlanTime = &metav1.Time{Time: p.Clock.Now()}
	}
	status.PlanHash, status.Findings = plan.hash, summary
}

// checkOverlaps reports older Migrations that migrate the same fleet or instances, or stop the same controllers. When
// the first of two Migrations with the same controllers ends, it would start these controllers, although the other
// Migration is still in progress.
func (p *pass) checkOverlaps(ctx context.Context, plan *plan) error {
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
		same = same && m.Spec.Instances == nil // Migrations of instances share no old objects.
		if other.UID == m.UID || other.Status.Phase.HasEnded() || m.CreationTimestamp.Before(&other.CreationTimestamp) ||
			m.CreationTimestamp.Equal(&other.CreationTimestamp) && m.UID < other.UID {
			continue
		}
		if both := p.adoptedByBoth(ctx, plan, other); len(both) > 0 {
			plan.findings.addf(provider.FindingBlocker, CodeOverlaps, "Migration/"+m.Name, "spec.instances",
				"The older Migration %s also adopts %s. Complete or abort it first, or select other instances with --name, "+
					"--selector or --network.", client.ObjectKeyFromObject(other),
				examples(len(both), "instance", cmp.Or(both[0].Name, both[0].Instance.ProviderID)))
		} else if same {
			plan.findings.addf(provider.FindingBlocker, CodeOverlaps, "Migration/"+m.Name, "",
				"The older Migration %s takes over the same fleet. Delete one of them.", client.ObjectKeyFromObject(other))
		} else if shared := stoppedByBoth(m, other); shared != "" {
			plan.findings.addf(provider.FindingBlocker, CodeOverlaps, "Migration/"+m.Name, "spec.fence",
				"The older Migration %s also stops %s. Complete or abort it first, or delete one of them.",
				client.ObjectKeyFromObject(other), shared)
		}
	}
	return nil
}

// checkWorkloads reports workloads that the migration could not stop. Without this check, the migration would stop
// the other workloads before it notices.
func (p *pass) checkWorkloads(ctx context.Context, plan *plan) error {
	for i, w := range p.migration.Spec.Fence.Workloads {
		name := fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name)
		problem := ""
		switch _, _, _, err := p.workload(ctx, w); {
		case apierrors.IsNotFound(err):
			problem = name + " does not exist. Correct --stop."
		case apierrors.IsForbidden(err):
			problem = fmt.Sprintf("The migrator may not read %s. Correct --stop, or add the namespace %s to the value "+
				"migrator.namespaces of the chart machinist-provider.", name, w.Namespace)
		case err != nil:
			return fmt.Errorf("read %s: %w", name, err)
		default:
			continue
		}
		plan.findings.addf(provider.FindingBlocker, CodeWorkloadUnreadable, "Migration/"+p.migration.Name,
			fmt.Sprintf("spec.fence.workloads[%d]", i), "%s", problem)
	}
	return nil
}

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

// checkSecretNames reports Secrets of the plan whose name is taken. makePlan does not read these Secrets.
func (p *pass) checkSecretNames(ctx context.Context, plan *plan, own *ownObjects) error {
	for _, class := range plan.classes {
		for _, secret := range class.secrets {
			other := &corev1.Secret{}
			err := p.Control.Get(ctx, client.ObjectKeyFromObject(secret), other)
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return fmt.Errorf("read Secret %s: %w", secret.Name, err)
			case !own.hasCreated(other):
				plan.findings.addf(provider.FindingBlocker, CodeNameTaken, plan.oldNames[secret], "", "The migration would "+
					"create the Secret %s for this object, but another one with this name exists in namespace %s. %s",
					secret.Name, secret.Namespace, remedyForName(p.migration, other))
			}
		}
	}
	return nil
}

// dryRun sends each missing object of the plan to the API server in dry-run mode, and reports rejections.
func (p *pass) dryRun(ctx context.Context, plan *plan, own *ownObjects) error {
	for _, object := range plan.manifests() {
		if own.find(object) != nil {
			continue
		}
		err := p.Control.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
			plan.findings.addf(provider.FindingBlocker, CodeRefused, plan.oldNames[object], "", "The API server refuses "+
				"the %s %s for this object: %s", kindOf(object), object.GetName(), p.redactor.inText(err.Error()))
		default:
			return fmt.Errorf("check whether %s %s can be created: %w", kindOf(object), object.GetName(), err)
		}
	}
	return nil
}

const chunkBytes = 600 << 10

func (p *pass) publish(ctx context.Context, plan *plan) error {
	m := p.migration
	var manifests strings.Builder
	for _, object := range plan.publishedObjects() {
		data, err := completedYAML(object)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", kindOf(object), object.GetName(), err)
		}
		manifests.WriteString("---\n" + string(data))
	}
	chunks := []map[string]string{}
	for _, text := range chunksOf(plan.findings.text(), "\n") {
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
			return fmt.Errorf("delete the ConfigMap %s: %w", existing.Items[i].Name, err)
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
		plan := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: name,
			Labels: map[string]string{v1beta1.LabelMigration: m.Name}}, Data: data}
		owner := metav1.NewControllerRef(m, v1beta1.GroupVersion.WithKind("Migration"))
		plan.OwnerReferences = []metav1.OwnerReference{*owner}
		err = p.Control.Create(ctx, plan)
	case err != nil || maps.Equal(have.Data, data):
	case !metav1.IsControlledBy(have, m):
		return fmt.Errorf("write the plan: the ConfigMap %s exists and belongs to another owner: delete or rename it", name)
	default:
		have.Data = data
		err = p.Control.Update(ctx, have)
	}
	if err != nil {
		return fmt.Errorf("write the ConfigMap %s: %w", name, err)
	}
	return nil
}

// chunksOf splits a text into chunks of at most chunkBytes. If possible, it splits the text before a separator. If
// the separator is a line break, it splits the text between two lines.
func chunksOf(text, separator string) []string {
	var chunks []string
	for len(text) > chunkBytes {
		cut := strings.LastIndex(text[:chunkBytes], separator)
		if separator == "\n" {
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

const planChanged = "The plan has changed since you agreed to it: undo what changed, or abort this migration and " +
	"create another one"

func (p *pass) runFencing(ctx context.Context) error {
	if fenced, err := p.ensureFenced(ctx, fenceScope{}); err != nil || !fenced {
		return err
	}
	return p.enter(v1beta1.MigrationSettling)
}

// runSettling performs a pass of the phase Settling. The method waits until the cloud shows the effects of all
// requests of the old controllers. Then the method computes the plan again, and continues only if the user has agreed
// to this plan.
func (p *pass) runSettling(ctx context.Context) error {
	fenced, err := p.ensureFenced(ctx, fenceScope{})
	if err != nil || !fenced || p.Clock.Since(p.fenceOf(p.migration).completeSince) < p.Cloud.CreateSettle() {
		return err
	}
	plan, _, _, err := p.makePlan(ctx)
	if err != nil {
		return err
	}
	p.storePlan(plan)
	if !p.isAgreed(plan) {
		p.addTrouble("%s", planChanged)
		return nil
	}
	return p.enter(v1beta1.MigrationCopying)
}
