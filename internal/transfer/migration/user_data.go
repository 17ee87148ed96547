package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// CodeNoVersion: the user data contains the placeholder for the kubelet version, but the old object has no version.
const CodeNoVersion = "NoVersion"

const kubeletVersion = "<<" + bootstrap.KubeletVersion + ">>"

// givenUserData returns the user data that the Migration names for new machines of a class, or nil. An override of
// the class takes precedence.
func (p *planner) givenUserData(class string) *v1beta1.UserDataRef {
	for _, o := range p.migration.Spec.Overrides {
		override := struct {
			UserDataRef *v1beta1.UserDataRef `json:"userDataRef"`
		}{}
		if o.Class == class && json.Unmarshal(o.Patch.Raw, &override) == nil && override.UserDataRef != nil {
			override.UserDataRef.Key = override.UserDataRef.KeyOrDefault()
			return override.UserDataRef
		}
	}
	return p.migration.Spec.UserDataRef.DeepCopy()
}

// openFindings returns the findings of a conversion, except losses of user data if the Migration names other user
// data.
func (p *planner) openFindings(c conversion) []provider.Finding {
	if c.Class == nil {
		return c.Findings
	}
	_, name := p.identify(c.Class, c.displayName)
	if p.givenUserData(name) == nil {
		return c.Findings
	}
	return slices.DeleteFunc(c.Findings, func(f provider.Finding) bool { return f.Code == source.CodeUserData })
}

// userData sets the user data of new machines. User data that the Migration names takes precedence over the user data
// of the old class, which the migration copies.
func (p *planner) userData(ctx context.Context, c *class) error {
	if given := p.givenUserData(c.name); given != nil {
		c.object.Spec.UserDataRef = given
		return p.checkGivenUserData(ctx, c, given)
	}
	ref, name := c.old.UserData, c.name+"-user-data"
	if ref == nil {
		p.plan.findings.addf(provider.FindingLoss, CodeNoUserData, c.firstObject, "",
			"The old system generated the user data itself. New machines of class %s get no user data unless "+
				"spec.userDataRef names a Secret with a template.%s", c.name, p.profileHelp())
		return nil
	}
	data, problem, err := p.secrets.entry(ctx, *ref)
	if err != nil {
		return err
	}
	if problem != nil {
		p.reportUnusable(problem, c.firstObject, "", p.userDataHelp())
		return nil
	}
	data, unknown, err := source.TranslateUserData(p.system.Group(), data)
	if err != nil {
		p.blockf(CodeSecretUnreadable, c.firstObject, "", "The user data in the %s %s/%s cannot be decoded. %s",
			ref.Kind, ref.Namespace, ref.Name, p.userDataHelp())
		return nil
	}
	for _, placeholder := range unknown {
		p.plan.findings.addf(provider.FindingLoss, CodePlaceholder, c.firstObject, "", "The user data in the %s %s/%s "+
			"contains %s, which Machinist does not replace. If it is a placeholder, new machines may not join. %s",
			ref.Kind, ref.Namespace, ref.Name, placeholder, p.userDataHelp())
	}
	c.object.Spec.UserDataRef = &v1beta1.UserDataRef{Name: name, Key: v1beta1.DefaultUserDataKey}
	c.secrets = append(c.secrets, p.secret(c, name, v1beta1.SecretUseUserData,
		map[string][]byte{v1beta1.DefaultUserDataKey: data}))
	return nil
}

// checkGivenUserData reports given user data that cannot be read, and the objects of a class that have no kubelet
// version although the user data contains the placeholder for it. New machines of these objects could not be created.
func (p *planner) checkGivenUserData(ctx context.Context, c *class, given *v1beta1.UserDataRef) error {
	data, problem, err := p.secrets.entriesForMigration(ctx, types.NamespacedName{Namespace: p.migration.Namespace,
		Name: given.Name})
	if err != nil {
		return err
	}
	template, found := data[given.KeyOrDefault()]
	if problem == nil && !found {
		problem = &unusableError{CodeSecretUnreadable, fmt.Sprintf("Secret %s/%s has no entry %s.", p.migration.Namespace,
			given.Name, given.KeyOrDefault())}
	}
	if problem != nil {
		p.reportUnusable(problem, c.firstObject, "", "Create it, or name another one with --user-data.")
		return nil
	}
	if !bytes.Contains(template, []byte(kubeletVersion)) {
		return nil
	}
	report := func(object client.Object, path string, spec *v1beta1.MachineSpec) {
		if spec.Version == "" && spec.ClassRef != nil && spec.ClassRef.Name == c.name {
			p.blockf(CodeNoVersion, p.plan.oldNames[object], path, "The object has no kubelet version, but the user data in "+
				"the Secret %s contains %s. Write the version into the Secret.", given.Name, kubeletVersion)
		}
	}
	for _, d := range p.plan.deployments {
		report(d.object, "spec.template.spec", &d.object.Spec.Template.Spec)
	}
	for _, s := range p.plan.sets {
		report(s.object, "spec.template.spec", &s.object.Spec.Template.Spec)
	}
	return nil
}

// profileHelp says how to create user data for a cluster of kubeadm.
func (p *planner) profileHelp() string {
	if p.system.Group() != provider.SourceClusterAPI {
		return ""
	}
	return fmt.Sprintf(" Create one with: machinist bootstrap render --profile kubeadm --name workers -n %s | kubectl "+
		"apply -f -, and add --user-data workers to the plan.", p.migration.Namespace)
}

// userDataHelp says how to replace the user data of the old system.
func (p *planner) userDataHelp() string {
	return fmt.Sprintf("To use your own template instead: machinist migrate plan %s -n %s --user-data SECRET",
		p.migration.Name, p.migration.Namespace)
}
