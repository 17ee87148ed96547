package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/internal/platform/permitted"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/internal/transfer/backup"
)

type adoption struct {
	all, dryRun bool
	set         string
	permitFor   time.Duration
	system      string
	clusterID   string
	ids         []string

	cluster  *Cluster
	template *v1beta1.MachineTemplateSpec
	// permittedClasses are the classes whose machines this run has permitted to adopt instances.
	permittedClasses []string
	// unlistedCount is the number of found instances that the report does not list.
	unlistedCount int
}

func orphansAdoptCommand(env *Env) *cobra.Command {
	var f adoption
	cmd := &cobra.Command{
		Use:   "adopt [PROVIDER-ID ...] | --all",
		Short: "Create machines that adopt instances without a machine",
		Long: `Create machines that adopt instances without a machine, for example after a snapshot of etcd was restored or Machines
were lost in another way. The adoption changes only the tags of an instance, and no Nodes.

Each instance gets a Machine with the name in the instance's tags. The machine's class is the class through which the
instance was found, or the class in the template of --set. For the time of --permit, the command permits the machines
of this class to adopt instances that are tagged with the cluster ID of this installation and with the namespace and
name of the machine. The command ignores instances whose machine exists.

A MachineSet adopts machines while it has fewer machines than spec.replicas. To get machines of a set, create them with
--set and then scale the set's deployment up.`,
		Example: `  # Show the machines that would be created
  machinist orphans adopt --all -n prod --dry-run

  # Create machines of a set
  machinist orphans adopt --all -n prod --set web-qdwlm5hg2

  # Create the machine of one instance
  machinist orphans adopt sim://sim-1/sim-1a/i-815e7097b4e79d919 -n prod`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.ids = args
			return f.run(cmd.Context(), env)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "adopt all instances of the namespace that the last check found")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only print which machines would be created")
	flags.StringVar(&f.set, "set", "", "MachineSet whose template and labels the machines get")
	flags.DurationVar(&f.permitFor, "permit", time.Hour, "time for which the class permits the adoption, at most 24h")
	flags.StringVar(&f.clusterID, "cluster-id", "",
		"cluster ID in the tags of the instances (default: the cluster ID that the processes recorded)")
	flags.StringVar(&f.system, "system-namespace", "", systemNamespaceUsage)
	return cmd
}

func (f *adoption) run(ctx context.Context, env *Env) error {
	switch {
	case f.all == (len(f.ids) > 0):
		return errors.New("specify either provider IDs or --all")
	case f.permitFor <= 0 || f.permitFor > v1beta1.MaxAdoptionFromCluster:
		return fmt.Errorf("--permit %s: must be more than 0 and at most %s", f.permitFor, v1beta1.MaxAdoptionFromCluster)
	}
	var err error
	if f.cluster, err = env.Connect(); err != nil {
		return err
	}
	if f.clusterID == "" {
		if f.clusterID, err = f.cluster.clusterID(ctx, f.system); err != nil {
			return err
		}
	}
	if f.set != "" {
		set := &v1beta1.MachineSet{}
		key := client.ObjectKey{Namespace: f.cluster.Namespace, Name: strings.TrimPrefix(f.set, "ms/")}
		if err := f.cluster.Get(ctx, key, set); err != nil {
			return f.cluster.Explain(err)
		}
		f.template = &set.Spec.Template
	}
	found, err := f.find(ctx)
	if err != nil {
		return err
	}
	created := int32(0)
	for _, e := range found {
		outcome, err := f.adopt(ctx, e)
		if err != nil {
			return fmt.Errorf("%w\nThe machines created so far remain. Fix the problem and run the command again",
				f.cluster.Explain(err))
		}
		if outcome == "" {
			created++
			outcome = "created, will adopt"
		}
		fmt.Fprintf(env.Out, "Machine %s: %s %s\n", e.Machine, outcome, e.ProviderID)
	}
	if f.unlistedCount > 0 {
		fmt.Fprintf(env.Out, "The last check found %s more. Run the command again after the next check.\n",
			wording.Count(f.unlistedCount, "instance"))
	}
	if f.dryRun {
		_, err = fmt.Fprintln(env.Out, "Nothing was changed.")
		return err
	}
	_, err = fmt.Fprintf(env.Out, "%s created. If one does not adopt its instance, run \"machinist why machine/NAME\".\n",
		wording.Count(created, "machine"))
	return err
}

// find returns the reports about the selected instances: those in the arguments, or with --all, those of the
// namespace. The method fails if an instance is unknown or cannot be adopted.
func (f *adoption) find(ctx context.Context) (found []ledger.Entry, err error) {
	view, err := f.cluster.orphans(ctx, f.cluster.Namespace, f.system)
	if err != nil {
		return nil, err
	}
	missing := slices.Clone(f.ids)
	for _, report := range view.Reports {
		f.unlistedCount += report.OmittedCount
		for _, e := range report.Entries {
			named := slices.Contains(f.ids, e.ProviderID)
			if e.ProviderID == "" || !named && !f.all {
				continue
			}
			missing = slices.DeleteFunc(missing, func(id string) bool { return id == e.ProviderID })
			switch orphans.Outcome(e.Outcome) {
			case orphans.OutcomeDuplicate, orphans.OutcomeDelete, orphans.OutcomeForceDeleted:
				if named {
					return nil, fmt.Errorf("instance %s cannot be adopted: its machine has another instance or was deleted by force, or the instance is being removed", e.ProviderID)
				}
				continue
			}
			found = append(found, e)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the last check found no instance in namespace %s without a machine and with the provider ID %s",
			f.cluster.Namespace, strings.Join(missing, ", "))
	}
	return found, nil
}

// adopt creates a Machine that adopts an instance. If no Machine is created, the result outcome explains the reason.
func (f *adoption) adopt(ctx context.Context, e ledger.Entry) (outcome string, err error) {
	machine := f.machine(e)
	if machine.Spec.ClassRef == nil {
		return "", fmt.Errorf("instance %s was found through %s, which is not a class: name a MachineSet with --set",
			e.ProviderID, e.Source)
	}
	switch err := f.cluster.Get(ctx, client.ObjectKeyFromObject(machine), &v1beta1.Machine{}); {
	case err == nil:
		return "exists already, will not adopt", nil
	case !apierrors.IsNotFound(err):
		return "", err
	}
	if f.dryRun {
		return "would adopt", nil
	}
	if err := f.permit(ctx, machine.Namespace, machine.Spec.ClassRef.Name); err != nil {
		return "", err
	}
	if err := backup.Create(ctx, f.cluster, machine); err != nil {
		return "", fmt.Errorf("create machine %s: %w", e.Machine, err)
	}
	return "", nil
}

// machine returns a Machine for an instance. Name and namespace come from the instance's tags.
func (f *adoption) machine(e ledger.Entry) *v1beta1.Machine {
	namespace, name, _ := strings.Cut(e.Machine, "/")
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if f.template != nil {
		m.Labels = withoutOwnership(f.template.ObjectMeta.Labels)
		m.Annotations = f.template.ObjectMeta.Annotations
		m.Spec = *f.template.Spec.DeepCopy()
	} else if of, class, isClass := strings.Cut(e.Source, "/"); isClass && of == namespace {
		m.Spec.ClassRef = &v1beta1.LocalRef{Name: class}
	}
	m.Spec.ProviderID = e.ProviderID
	return m
}

// withoutOwnership copies the labels of a set's template, except those that the set adds to adopted machines.
func withoutOwnership(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		switch key {
		case v1beta1.LabelProvider, v1beta1.LabelMachineSet, v1beta1.LabelMachineDeployment:
		default:
			out[key] = value
		}
	}
	return out
}

// permit allows the machines of a class to adopt instances with this cluster ID. A repeated call does nothing.
func (f *adoption) permit(ctx context.Context, namespace, name string) error {
	if slices.Contains(f.permittedClasses, name) {
		return nil
	}
	class := &v1beta1.MachineClass{}
	if err := f.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, class); err != nil {
		return err
	}
	now := f.cluster.clock.Now() // Provider processes have clocks close to the API server's.
	from := class.Annotations[v1beta1.AnnotationAdoptFromCluster]
	until := class.Annotations[v1beta1.AnnotationAdoptFromClusterUntil]
	if from != "" && from != f.clusterID && permitted.Check(until, now, v1beta1.MaxAdoptionFromCluster) == "" {
		return fmt.Errorf("MachineClass %s permits its machines to adopt instances of cluster %s until %s: run the "+
			"command again after that time", name, from, until)
	}
	if removal := class.Annotations[v1beta1.AnnotationRemoveOrphansUntil]; removal != "" {
		return fmt.Errorf("MachineClass %s has the annotation %s=%s, which removes these instances: remove the annotation",
			name, v1beta1.AnnotationRemoveOrphansUntil, removal)
	}
	before := class.DeepCopy()
	if class.Annotations == nil {
		class.Annotations = map[string]string{}
	}
	class.Annotations[v1beta1.AnnotationAdoptFromCluster] = f.clusterID
	class.Annotations[v1beta1.AnnotationAdoptFromClusterUntil] = now.Add(f.permitFor).UTC().Format(time.RFC3339)
	if err := f.cluster.Patch(ctx, class, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("permit the machines of MachineClass %s to adopt instances: %w", name, err)
	}
	f.permittedClasses = append(f.permittedClasses, name)
	return nil
}
