package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/migrate"
)

// maxMigrationName limits the name of a Migration, because names of ConfigMaps and Leases contain it.
const maxMigrationName = 40

type migrationFlags struct {
	source, sourceNamespace, provider string
	credentials, userData             string
	processFlags, overrides, exclude  []string
	fence                             fenceFlags
}

func (f *migrationFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.source, "source", "", "the old system: the API group of its machines, or one of kubermatic, "+
		"cluster-api, gardener, openshift; required for a new Migration")
	flags.StringVar(&f.provider, "provider", "", "name of the provider that adopts the instances; required for a new Migration")
	flags.StringVar(&f.sourceNamespace, "source-namespace", "",
		"namespace of the old objects if they are namespaced (default: the namespace of the Migration)")
	flags.StringVar(&f.credentials, "credentials", "", "Secret in the namespace of the Migration that adds keys to the "+
		"old system's credentials")
	flags.StringVar(&f.userData, "user-data", "", "SECRET[:KEY] with the bootstrap template of new machines, "+
		"instead of the user data of the old system; the key defaults to "+v1beta1.DefaultUserDataKey)
	flags.StringArrayVar(&f.processFlags, "flag", nil, "NAME=VALUE of a flag of the old controllers that changes the meaning of their objects; may be repeated")
	flags.StringArrayVar(&f.overrides, "override", nil, "CLASS=@FILE or CLASS=JSON: a JSON merge patch for the spec of "+
		"a converted class, in which null removes a field; may be repeated")
	flags.StringArrayVar(&f.exclude, "exclude", nil, "KIND/NAME of an old deployment, set, machine or health check that "+
		"stays with the old system, together with its machines; may be repeated")
	f.fence.flags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("source", cobra.FixedCompletions(migrate.Systems(),
		cobra.ShellCompDirectiveNoFileComp))
}

type fenceFlags struct {
	stop, leases []string
	noElection   bool
}

func (f *fenceFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.stop, "stop", nil, "KIND/NAMESPACE/NAME of a workload that is scaled to 0, such as "+
		"deployment/kube-system/machine-controller; may be repeated")
	flags.StringArrayVar(&f.leases, "lease", nil, "NAMESPACE/NAME of a Lease of the old controllers, instead of the "+
		"usual Leases of the system; may be repeated")
	flags.BoolVar(&f.noElection, "no-leader-election", false,
		"the old controllers hold no Lease: name all of them with --stop")
}

// wantedMigration holds the parsed migrationFlags. An unset flag is nil. An empty flag removes the field.
type wantedMigration struct {
	source, sourceNamespace, provider *string
	credentials                       *v1beta1.LocalRef
	userData                          *v1beta1.UserDataRef
	processFlags                      map[string]v1beta1.FlagValue
	overrides                         []v1beta1.MigrationOverride
	exclude                           []string
	fence                             wantedFence
	// instances is set by the command adopt.
	instances *v1beta1.MigrationInstances
}

// wantedFence holds the parsed fenceFlags. An unset flag is nil.
type wantedFence struct {
	workloads    []v1beta1.MigrationWorkload
	leases       []v1beta1.MigrationLease
	electsLeader *bool
}

func (f *migrationFlags) read(cmd *cobra.Command) (w wantedMigration, err error) {
	changed := cmd.Flags().Changed
	if changed("source") {
		source, err := migrate.Source(f.source)
		if err != nil {
			return w, fmt.Errorf("--source %w", err)
		}
		w.source = &source
	}
	if changed("provider") {
		if err := checkName("--provider", f.provider, validation.IsDNS1123Label); err != nil {
			return w, err
		}
		w.provider = &f.provider
	}
	if changed("source-namespace") {
		if err := checkName("--source-namespace", f.sourceNamespace, validation.IsDNS1123Label); err != nil {
			return w, err
		}
		w.sourceNamespace = &f.sourceNamespace
	}
	if changed("credentials") {
		if f.credentials != "" {
			if err := checkName("--credentials", f.credentials, validation.IsDNS1123Subdomain); err != nil {
				return w, err
			}
		}
		w.credentials = &v1beta1.LocalRef{Name: f.credentials}
	}
	if changed("user-data") {
		if w.userData, err = readUserData(f.userData); err != nil {
			return w, err
		}
	}
	if w.processFlags, err = readProcessFlags(f.processFlags); err != nil {
		return w, err
	}
	if w.overrides, err = readOverrides(cmd, f.overrides); err != nil {
		return w, err
	}
	if w.exclude, err = readExclude(f.exclude); err != nil {
		return w, err
	}
	w.fence, err = f.fence.read(cmd)
	return w, err
}

func checkName(flag, value string, check func(string) []string) error {
	if value == "" {
		return fmt.Errorf("%s %q: the name is missing", flag, value)
	}
	if problems := check(value); len(problems) > 0 {
		return fmt.Errorf("%s %q: %s", flag, value, problems[0])
	}
	return nil
}

// readUserData parses SECRET[:KEY]. An empty value removes the reference.
func readUserData(text string) (*v1beta1.UserDataRef, error) {
	if text == "" {
		return &v1beta1.UserDataRef{}, nil
	}
	name, key, hasKey := strings.Cut(text, ":")
	if err := checkName("--user-data", name, validation.IsDNS1123Subdomain); err != nil {
		return nil, err
	}
	if !hasKey {
		return &v1beta1.UserDataRef{Name: name, Key: v1beta1.DefaultUserDataKey}, nil
	}
	if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
		return nil, fmt.Errorf("--user-data %q: the key %q is not valid: %s", text, key, problems[0])
	}
	return &v1beta1.UserDataRef{Name: name, Key: key}, nil
}

// readProcessFlags parses --flag values such as NAME=VALUE. An empty value removes all entries.
func readProcessFlags(all []string) (map[string]v1beta1.FlagValue, error) {
	if len(all) == 0 {
		return nil, nil
	}
	flags := map[string]v1beta1.FlagValue{}
	for _, text := range all {
		if text == "" {
			return map[string]v1beta1.FlagValue{}, nil
		}
		name, value, found := strings.Cut(strings.TrimLeft(text, "-"), "=")
		if !found || name == "" {
			return nil, fmt.Errorf("--flag %q: write NAME=VALUE, such as skip-eviction-after=2h", text)
		}
		if before, twice := flags[name]; twice && string(before) != value {
			return nil, fmt.Errorf("--flag %q: the flag also has the value %q", text, before)
		}
		flags[name] = v1beta1.FlagValue(value)
	}
	return flags, nil
}

// readOverrides parses --override values: CLASS=@FILE or CLASS=JSON. An empty value removes all entries.
func readOverrides(cmd *cobra.Command, all []string) ([]v1beta1.MigrationOverride, error) {
	var overrides []v1beta1.MigrationOverride
	seen := map[string]bool{}
	for _, text := range all {
		if text == "" {
			return []v1beta1.MigrationOverride{}, nil
		}
		class, patch, found := strings.Cut(text, "=")
		if !found || class == "" || patch == "" {
			return nil, fmt.Errorf("--override %q: write CLASS=@FILE or CLASS=JSON", text)
		}
		if seen[class] {
			return nil, fmt.Errorf("--override %q: class %q already has a patch; combine the patches into one", text, class)
		}
		seen[class] = true
		content, source := []byte(patch), "the value"
		if file, ok := strings.CutPrefix(patch, "@"); ok {
			var err error
			if content, source, err = readFile(file, cmd.InOrStdin()); err != nil {
				return nil, fmt.Errorf("--override %q: %w", text, err)
			}
		}
		raw, err := yaml.YAMLToJSON(content)
		if err != nil {
			return nil, fmt.Errorf("--override %q: %s is neither JSON nor YAML: %w", text, source, err)
		}
		var object map[string]any
		if err := json.Unmarshal(raw, &object); err != nil || object == nil {
			return nil, fmt.Errorf("--override %q: %s must be an object, such as {\"providerSpec\": {\"zone\": \"1\"}}", text,
				source)
		}
		overrides = append(overrides, v1beta1.MigrationOverride{Class: class, Patch: &runtime.RawExtension{Raw: raw}})
	}
	return overrides, nil
}

// readExclude parses --exclude values: KIND/NAME. An empty value removes all entries.
func readExclude(all []string) ([]string, error) {
	var entries []string
	for _, text := range all {
		if text == "" {
			return []string{}, nil
		}
		given, name, _ := strings.Cut(text, "/")
		i := slices.IndexFunc(kindsToExclude, func(kind string) bool {
			return strings.EqualFold(given, kind) || strings.EqualFold(given, kind+"s")
		})
		if i < 0 {
			return nil, fmt.Errorf("--exclude %q: write KIND/NAME with one of the kinds %s", text,
				strings.Join(kindsToExclude, ", "))
		}
		if err := checkName("--exclude "+text+": name", name, validation.IsDNS1123Subdomain); err != nil {
			return nil, err
		}
		if entry := kindsToExclude[i] + "/" + name; !slices.Contains(entries, entry) {
			entries = append(entries, entry)
		}
	}
	return entries, nil
}

var kindsToExclude = []string{"MachineDeployment", "MachineSet", "Machine", "MachineHealthCheck"}

var kindsToStop = map[string]string{
	"deployment": "Deployment", "deployments": "Deployment", "deploy": "Deployment",
	"statefulset": "StatefulSet", "statefulsets": "StatefulSet", "sts": "StatefulSet",
}

// read parses the flags. An empty value removes all entries of its flag.
func (f *fenceFlags) read(cmd *cobra.Command) (w wantedFence, err error) {
	for _, text := range f.stop {
		if text == "" {
			w.workloads = []v1beta1.MigrationWorkload{}
			break
		}
		parts := strings.Split(text, "/")
		kind := kindsToStop[strings.ToLower(parts[0])]
		if len(parts) != 3 || kind == "" {
			return w, fmt.Errorf("--stop %q: write KIND/NAMESPACE/NAME with the kind deployment or statefulset", text)
		}
		if err := errors.Join(checkName("--stop "+text+": namespace", parts[1], validation.IsDNS1123Label),
			checkName("--stop "+text+": name", parts[2], validation.IsDNS1123Subdomain)); err != nil {
			return w, err
		}
		w.workloads = append(w.workloads, v1beta1.MigrationWorkload{Kind: kind, Namespace: parts[1], Name: parts[2]})
	}
	for _, text := range f.leases {
		if text == "" {
			w.leases = []v1beta1.MigrationLease{}
			break
		}
		parts := strings.Split(text, "/")
		if len(parts) != 2 {
			return w, fmt.Errorf("--lease %q: write NAMESPACE/NAME", text)
		}
		if err := errors.Join(checkName("--lease "+text+": namespace", parts[0], validation.IsDNS1123Label),
			checkName("--lease "+text+": name", parts[1], validation.IsDNS1123Subdomain)); err != nil {
			return w, err
		}
		w.leases = append(w.leases, v1beta1.MigrationLease{Namespace: parts[0], Name: parts[1]})
	}
	if cmd.Flags().Changed("no-leader-election") {
		w.electsLeader = ptr.To(!f.noElection)
	}
	return w, nil
}

func (w wantedFence) apply(to *v1beta1.MigrationFence) (changed bool) {
	before := to.DeepCopy()
	if w.workloads != nil {
		to.Workloads = w.workloads
	}
	if w.leases != nil {
		to.Leases = w.leases
	}
	if w.electsLeader != nil {
		to.ElectsLeader = w.electsLeader
	}
	return !equality.Semantic.DeepEqual(before, to)
}

// create returns a new Migration from the flags. The method sends no request.
func (w wantedMigration) create(namespace, name string) (*v1beta1.Migration, error) {
	for flag, value := range map[string]*string{"--source": w.source, "--provider": w.provider} {
		if value == nil {
			return nil, fmt.Errorf("migration %q not found in namespace %q: %s is required to create it", name, namespace, flag)
		}
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 || len(name) > maxMigrationName {
		return nil, fmt.Errorf("NAME %q: must be at most %d characters of a-z, 0-9 and -, and must not start or end with -",
			name, maxMigrationName)
	}
	m := &v1beta1.Migration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.MigrationSpec{Source: *w.source, Provider: *w.provider, Stage: v1beta1.MigrationPlan,
			SourceNamespace: ptr.Deref(w.sourceNamespace, "")},
	}
	_, err := w.update(m)
	return m, err
}

// update applies the flags to an existing Migration, and reports whether it changed. The method fails if a field can
// no longer be changed.
func (w wantedMigration) update(m *v1beta1.Migration) (changed bool, err error) {
	spec := &m.Spec
	for _, fixed := range []struct {
		flag, field, current string
		wanted               *string
	}{
		{"--source", "spec.source", spec.Source, w.source},
		{"--provider", "spec.provider", spec.Provider, w.provider},
		{"--source-namespace", "spec.sourceNamespace", m.SourceNamespaceOrDefault(), w.sourceNamespace},
	} {
		if fixed.wanted != nil && *fixed.wanted != fixed.current {
			return false, fmt.Errorf("%s %q: %s of migration %q is %q and cannot be changed; choose another name, or delete "+
				"that Migration first", fixed.flag, *fixed.wanted, fixed.field, m.Name, fixed.current)
		}
	}
	before := spec.DeepCopy()
	wasOverrides := spec.Overrides
	if w.credentials != nil {
		spec.CredentialsRef = nil
		if w.credentials.Name != "" {
			spec.CredentialsRef = w.credentials
		}
	}
	if w.userData != nil {
		spec.UserDataRef = nil
		if w.userData.Name != "" {
			spec.UserDataRef = w.userData
		}
	}
	if w.processFlags != nil {
		spec.ProcessFlags = w.processFlags
	}
	if w.overrides != nil && !sameOverrides(w.overrides, wasOverrides) {
		spec.Overrides = w.overrides
	}
	if w.exclude != nil {
		spec.Exclude = w.exclude
	}
	if w.instances != nil {
		spec.Instances = w.instances
	}
	fence := w.fence.apply(&spec.Fence)
	if spec.Stage == v1beta1.MigrationPlan {
		return !equality.Semantic.DeepEqual(before, spec), nil
	}
	for _, fixed := range []struct {
		flag, field string
		same        bool
	}{
		{"--credentials", "credentialsRef", equality.Semantic.DeepEqual(before.CredentialsRef, spec.CredentialsRef)},
		{"--user-data", "userDataRef", equality.Semantic.DeepEqual(before.UserDataRef, spec.UserDataRef)},
		{"--flag", "processFlags", equality.Semantic.DeepEqual(before.ProcessFlags, spec.ProcessFlags)},
		{"--exclude", "exclude", equality.Semantic.DeepEqual(before.Exclude, spec.Exclude)},
		{"--class, --name, --selector, --network, --group-by", "instances",
			equality.Semantic.DeepEqual(before.Instances, spec.Instances)},
		{"--override", "overrides", equality.Semantic.DeepEqual(before.Overrides, spec.Overrides)},
	} {
		if !fixed.same {
			return false, fmt.Errorf("%s: spec.%s of migration %q can no longer be changed, because spec.stage is %s; %s",
				fixed.flag, fixed.field, m.Name, spec.Stage, anotherMigration(m))
		}
	}
	if fence && m.Status.Phase.HasEnded() {
		return false, fmt.Errorf("--stop, --lease, --no-leader-election: migration %q has ended; %s", m.Name,
			anotherMigration(m))
	}
	if fence {
		return false, fmt.Errorf("--stop, --lease, --no-leader-election: spec.stage of migration %q is %s; change these "+
			"settings with machinist migrate run %s", m.Name, spec.Stage, migrate.Reference(m))
	}
	return false, nil
}

// anotherMigration says how to replace a Migration whose plan can no longer be changed.
func anotherMigration(m *v1beta1.Migration) string {
	switch phase := m.Status.Phase; {
	case phase.HasEnded():
		return "delete the Migration and create another one: kubectl delete migration " + migrate.Reference(m)
	case phase.Irrevocable():
		return "create another Migration after this one is Completed"
	case m.Spec.Stage == v1beta1.MigrationAbort:
		return "create another Migration after this one is Aborted"
	}
	return "abort the Migration and create another one: machinist migrate abort " + migrate.Reference(m)
}

// sameOverrides compares patches and ignores their format, because the API server reformats JSON.
func sameOverrides(a, b []v1beta1.MigrationOverride) bool {
	decode := func(all []v1beta1.MigrationOverride) map[string]any {
		patches := map[string]any{}
		for _, o := range all {
			var patch any
			if o.Patch != nil && json.Unmarshal(o.Patch.Raw, &patch) == nil {
				patches[o.Class] = patch
			}
		}
		return patches
	}
	return len(a) == len(b) && reflect.DeepEqual(decode(a), decode(b))
}

// explainRejection returns an error with one line for each invalid field of a rejected Migration. Other errors stay
// unchanged.
func explainRejection(m *v1beta1.Migration, err error) error {
	var invalid *invalidDocument
	if raw, marshalErr := json.Marshal(m); marshalErr == nil && errors.As(document{raw: raw}.explain(err), &invalid) {
		return fmt.Errorf("the API server rejects migration %q:\n  %s", m.Name, strings.Join(invalid.lines, "\n  "))
	}
	return err
}
