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

// adoptFlags are those of machinist orphans adopt.
type adoptFlags struct {
	all, dryRun    bool
	set            string
	lasts          time.Duration
	system, id     string
	cluster        *Cluster
	ids            []string
	template       *v1beta1.MachineTemplateSpec
	permittedNames []string
	// undescribed is how many more there are than the last check described.
	undescribed int
}

func orphansAdoptCommand(env *Env) *cobra.Command {
	var f adoptFlags
	cmd := &cobra.Command{
		Use:   "adopt [PROVIDER-ID ...] | --all",
		Short: "Make machines again that take over instances without a machine",
		Long: `Make machines again that take over instances without a machine: after a snapshot of etcd was put back,
or Machines were lost otherwise. No instance is changed but for its tags, and no Node.

Each instance gets a Machine of the name in its tags, of the class by which it was found or of --set. The
class permits for the time of --permit that its machines take over instances that carry this
installation's own cluster id, and their own namespace and name. An instance whose machine exists is left
alone.

A MachineSet takes machines in while it has too few: make them with --set, and then scale its deployment up.`,
		Example: `  # What would be made
  machinist orphans adopt --all -n prod --dry-run

  # As machines of a set
  machinist orphans adopt --all -n prod --set web-qdwlm5hg2

  # One
  machinist orphans adopt sim://sim-1/sim-1a/i-815e7097b4e79d919 -n prod`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.ids = args
			return f.run(cmd.Context(), env)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.all, "all", false, "all of the namespace that the last check found")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only print which machines would be made")
	flags.StringVar(&f.set, "set", "", "MachineSet whose template and labels the machines get")
	flags.DurationVar(&f.lasts, "permit", time.Hour, "time for which the class permits the adoption, at most 24h")
	flags.StringVar(&f.id, "cluster-id", "",
		"cluster id that the instances are tagged with; default: the one that the processes recorded")
	flags.StringVar(&f.system, "system-namespace", "", systemNamespaceUsage)
	return cmd
}

func (f *adoptFlags) run(ctx context.Context, env *Env) error {
	switch {
	case f.all == (len(f.ids) > 0):
		return errors.New("name provider IDs, or --all, and not both")
	case f.lasts <= 0 || f.lasts > v1beta1.MaxAdoptionFromCluster:
		return fmt.Errorf("--permit %s: must be more than 0 and at most %s", f.lasts, v1beta1.MaxAdoptionFromCluster)
	}
	var err error
	if f.cluster, err = env.Connect(); err != nil {
		return err
	}
	if f.id == "" {
		if f.id, err = f.cluster.clusterID(ctx, f.system); err != nil {
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
	made := int32(0)
	for _, e := range found {
		outcome, err := f.adopt(ctx, e)
		if err != nil {
			return fmt.Errorf("%w\nWhat was made stays. Repeat the command when that is mended", f.cluster.Explain(err))
		}
		if outcome == "" {
			made++
			outcome = "takes over"
		}
		fmt.Fprintf(env.Out, "Machine %s: %s %s\n", e.Machine, outcome, e.ProviderID)
	}
	if f.undescribed > 0 {
		fmt.Fprintf(env.Out, "The last check found %s more. Repeat the command after the next one.\n",
			wording.Count(f.undescribed, "instance"))
	}
	if f.dryRun {
		_, err = fmt.Fprintln(env.Out, "Nothing was changed.")
		return err
	}
	_, err = fmt.Fprintf(env.Out, "%s made. machinist why machine/NAME shows why one does not take its instance over.\n",
		wording.Count(made, "machine"))
	return err
}

// find returns the instances of the namespace that were asked for, as the last check found them.
func (f *adoptFlags) find(ctx context.Context) (found []ledger.Entry, err error) {
	view, err := f.cluster.orphans(ctx, f.cluster.Namespace, f.system)
	if err != nil {
		return nil, err
	}
	missing := slices.Clone(f.ids)
	for _, report := range view.Reports {
		f.undescribed += report.Undescribed
		for _, e := range report.Entries {
			asked := slices.Contains(f.ids, e.ProviderID)
			if e.ProviderID == "" || !asked && !f.all {
				continue
			}
			missing = slices.DeleteFunc(missing, func(id string) bool { return id == e.ProviderID })
			switch orphans.Outcome(e.Outcome) {
			case orphans.Duplicate, orphans.Delete, orphans.ForceDeleted:
				if asked {
					return nil, fmt.Errorf("instance %s: its machine has another one or was deleted by force, or it is being removed", e.ProviderID)
				}
				continue
			}
			found = append(found, e)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("the last check found no instance without a machine of namespace %s with the provider ID %s",
			f.cluster.Namespace, strings.Join(missing, ", "))
	}
	return found, nil
}

// adopt makes the Machine of an instance, and says why not if it is not made.
func (f *adoptFlags) adopt(ctx context.Context, e ledger.Entry) (instead string, err error) {
	machine := f.machine(e)
	if machine.Spec.ClassRef == nil {
		return "", fmt.Errorf("instance %s was found by %s, which is no class: name a --set", e.ProviderID, e.Source)
	}
	switch err := f.cluster.Get(ctx, client.ObjectKeyFromObject(machine), &v1beta1.Machine{}); {
	case err == nil:
		return "exists, and leaves alone", nil
	case !apierrors.IsNotFound(err):
		return "", err
	}
	if f.dryRun {
		return "would take over", nil
	}
	if err := f.permit(ctx, machine.Namespace, machine.Spec.ClassRef.Name); err != nil {
		return "", err
	}
	if err := backup.Make(ctx, f.cluster, machine); err != nil {
		return "", fmt.Errorf("make machine %s: %w", e.Machine, err)
	}
	return "", nil
}

// machine returns the Machine of an instance, by the name in the instance's tags.
func (f *adoptFlags) machine(e ledger.Entry) *v1beta1.Machine {
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

// withoutOwnership returns the labels of a set's template but those that the set gives when it takes a machine in.
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

// permit lets the machines of a class take over instances with the cluster id of this installation, once in a command.
func (f *adoptFlags) permit(ctx context.Context, namespace, name string) error {
	if slices.Contains(f.permittedNames, name) {
		return nil
	}
	class := &v1beta1.MachineClass{}
	if err := f.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, class); err != nil {
		return err
	}
	now := f.cluster.clock.Now() // By the API server's clock, as processes judge it.
	from := class.Annotations[v1beta1.AnnotationAdoptFromCluster]
	until := class.Annotations[v1beta1.AnnotationAdoptFromClusterUntil]
	if from != "" && from != f.id && permitted.Until(until, now, v1beta1.MaxAdoptionFromCluster) == "" {
		return fmt.Errorf("MachineClass %s lets its machines take over instances of cluster %s until %s: repeat the "+
			"command after that", name, from, until)
	}
	if removal := class.Annotations[v1beta1.AnnotationRemoveOrphansUntil]; removal != "" {
		return fmt.Errorf("MachineClass %s has the annotation %s=%s, by which these instances are removed: take it off",
			name, v1beta1.AnnotationRemoveOrphansUntil, removal)
	}
	before := class.DeepCopy()
	if class.Annotations == nil {
		class.Annotations = map[string]string{}
	}
	class.Annotations[v1beta1.AnnotationAdoptFromCluster] = f.id
	class.Annotations[v1beta1.AnnotationAdoptFromClusterUntil] = now.Add(f.lasts).UTC().Format(time.RFC3339)
	if err := f.cluster.Patch(ctx, class, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("permit MachineClass %s to take over instances: %w", name, err)
	}
	f.permittedNames = append(f.permittedNames, name)
	return nil
}
