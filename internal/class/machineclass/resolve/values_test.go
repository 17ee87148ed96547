package resolve_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// Rule: values-of-the-class.
func TestValuesOfTheClassReplacePlaceholders(t *testing.T) {
	withValues := func() *v1beta1.MachineClass {
		c := class()
		c.Spec.Values = []v1beta1.UserDataValue{
			{Name: "text", Value: ptr.To("t")},
			{Name: "token", ValueFrom: &v1beta1.UserDataValueSource{SecretKeyRef: &v1beta1.KeyRef{Name: "registry", Key: "token"}}},
			{Name: "motd", ValueFrom: &v1beta1.UserDataValueSource{ConfigMapKeyRef: &v1beta1.KeyRef{Name: "texts", Key: "motd"}}},
		}
		return c
	}
	texts := func(labels map[string]string) *corev1.ConfigMap {
		m := &corev1.ConfigMap{ObjectMeta: named("texts"), Data: map[string]string{"motd": "hello"}}
		m.Labels = labels
		return m
	}
	usable := map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseUserData}
	template := secret("boot", "userData", "<<VALUES.text>> <<VALUES.token>> <<VALUES.motd>> <<MACHINE_NAME>>")
	registry := labelledFor(v1beta1.SecretUseUserData, secret("registry", "token", "hunter2"))
	for name, c := range map[string]struct {
		objects []client.Object
		reason  string // empty if there is no error
		text    string
	}{
		"everything exists":       {[]client.Object{template, registry, texts(usable)}, "", ""},
		"the Secret is missing":   {[]client.Object{template, texts(usable)}, v1beta1.ReasonUserDataNotFound, `Secret "registry", which should contain the value of <<VALUES.token>>`},
		"the key is missing":      {[]client.Object{template, labelledFor(v1beta1.SecretUseUserData, secret("registry", "other", "x")), texts(usable)}, v1beta1.ReasonUserDataNotFound, `under the key "token"`},
		"the Secret has no label": {[]client.Object{template, secret("registry", "token", "x"), texts(usable)}, v1beta1.ReasonSecretNotLabelled, "registry"},
		"the ConfigMap is missing": {[]client.Object{template, registry}, v1beta1.ReasonUserDataNotFound,
			`ConfigMap "texts", which should contain the value of <<VALUES.motd>>`},
		"the ConfigMap has no label": {[]client.Object{template, registry, texts(nil)}, v1beta1.ReasonSecretNotLabelled,
			"kubectl label configmap texts --namespace=ns machinist.dev/secret-use=user-data"},
		"a value is missing": {[]client.Object{secret("boot", "userData", "<<VALUES.other>>"), registry, texts(usable)},
			v1beta1.ReasonInvalidConfiguration, "<<VALUES.other>>, for which spec.values has no value"},
	} {
		t.Run(name, func(t *testing.T) {
			r := resolver(t, append(c.objects, withValues(), secret("creds", "token", "t"))...)
			got, err := r.Resolve(t.Context(), byClass())
			if c.reason == "" {
				if err != nil || string(got.UserData) != "t hunter2 hello <<MACHINE_NAME>>" {
					t.Errorf("the user data is %q, %v", string(got.UserData), err)
				}
				return
			}
			e, ok := errors.AsType[*resolve.Error](err)
			if !ok || e.Reason != c.reason || !strings.Contains(e.Message, c.text) {
				t.Errorf("%v, want %s: …%s…", err, c.reason, c.text)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is in the error: %v", err)
			}
		})
	}
	names := resolve.SecretNames(withValues())
	if len(names) != 3 || names[2] != "registry" {
		t.Errorf("the Secrets of the class are %q", names)
	}
}
