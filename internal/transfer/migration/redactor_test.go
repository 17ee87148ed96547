package migration

import (
	"context"
	"errors"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// Rule: migration-hides-values-of-secrets.
func TestRedactorReplacesValues(t *testing.T) {
	r := &redactor{}
	for _, value := range []string{"swordfish-4711\n", "a", "abc", "line one\nline two", "swordfish-4711-extended",
		"<b>&</b>", "p/ss w?rd", "", "\n", "machinist", "kubernetes\n"} {
		r.add([]byte(value))
	}
	for text, want := range map[string]string{
		"":                                                  "",
		"no value":                                          "no value",
		"a cat, abc":                                        "a cat, abc", // Short values are not replaced.
		"machinist.dev/team, kubernetes.io/os":              "machinist.dev/team, kubernetes.io/os",
		"the region swordfish-4711!":                        "the region [redacted]!",
		"swordfish-4711-extended is long":                   "[redacted] is long",
		"twice swordfish-4711swordfish-4711":                "twice [redacted][redacted]",
		"shortened: swordfish…":                             "shortened: [redacted]…",
		"too short: swordfi":                                "too short: swordfi",
		"lines line one\nline two.":                         "lines [redacted].",
		`quoted "line one\nline two"`:                       `quoted "[redacted]"`,
		`JSON "\u003cb\u003e\u0026\u003c/b\u003e"`:          `JSON "[redacted]"`,
		"base64 c3dvcmRmaXNoLTQ3MTE=":                       "base64 [redacted]=",
		"https://cloud/p%2Fss%20w%3Frd?q=p%2Fss+w%3Frd&n=1": "https://cloud/[redacted]?q=[redacted]&n=1",
	} {
		if got := r.inText(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	plain := errors.New("no value")
	if err := r.inError(plain); !errors.Is(err, plain) {
		t.Errorf("got another error %v for one without values", err)
	}
	if err := r.inError(errors.New("region swordfish-4711 is unknown")); err.Error() != "region [redacted] is unknown" {
		t.Errorf("got the error %v, want one without the value", err)
	}
	if err := r.inError(nil); err != nil {
		t.Errorf("got the error %v for none", err)
	}
}

// The message of a cloud can quote a value that the driver sent.
//
// Rule: migration-hides-values-of-secrets.
func TestMessagesOfCloudAreRedacted(t *testing.T) {
	const value = "azure-account/secret"
	f := regionFromSecret(t)
	f.cloud.locateError = provider.Errorf(provider.InvalidArgument, "the region %s does not exist", value)
	plan := f.plan()
	plan.findings.redact(&f.redactor)
	found := plan.expect(t, blocker, CodeCannotImport, "Machine/worker-2")
	if strings.Contains(found.Message, value) || !strings.Contains(found.Message, "region "+redacted) {
		t.Errorf("got the message %q, want %s in it", found.Message, redacted)
	}
	f.cloud.locateError = provider.Errorf(provider.Unavailable, "the region %s does not answer", value)
	_, err := f.planner().build(context.Background(), f.visitObjects)
	if err = f.redactor.inError(err); err == nil || strings.Contains(err.Error(), value) {
		t.Errorf("got the error %v, want one without the value", err)
	}
}
