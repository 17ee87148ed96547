package bootstrap

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/env"
)

func attempt() Attempt {
	return Attempt{Machine: types.NamespacedName{Namespace: "fleet", Name: "m"}, UID: uuid.NewUUID(), Number: 1}
}

func secretOf(t *testing.T, token Token) *corev1.Secret {
	t.Helper()
	id, _, _ := strings.Cut(token.Value, ".")
	s := &corev1.Secret{}
	if err := env.Client(t).Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: secretName(id)},
		s); err != nil {
		t.Fatal(err)
	}
	return s
}

func ensure(t *testing.T, a Attempt, expires time.Time) Token {
	t.Helper()
	token, err := Tokens{Client: env.Client(t)}.Ensure(t.Context(), a, Terms{Expires: expires})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokenAuthenticatesOnlyAsBootstrapper(t *testing.T) {
	token := ensure(t, attempt(), time.Now().Add(time.Hour))
	id, _, _ := strings.Cut(token.Value, ".")
	if !regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`).MatchString(token.Value) {
		t.Fatal("the token does not have the form that Kubernetes requires")
	}
	cp := env.ControlPlane()
	c, err := client.New(&rest.Config{Host: cp.Endpoint(), TLSClientConfig: rest.TLSClientConfig{CAData: cp.CA()},
		BearerToken: token.Value},
		client.Options{Scheme: env.Scheme(), Mapper: env.Client(t).RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	// The API server learns of the Secret by a watch.
	review := &authenticationv1.SelfSubjectReview{}
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, env.Patience, true,
		func(ctx context.Context) (bool, error) {
			err := c.Create(ctx, review)
			return err == nil, client.IgnoreNotFound(ignoreUnauthorized(err))
		})
	if err != nil {
		t.Fatal(err)
	}
	user := review.Status.UserInfo
	if got, ok := TokenIDOf(user.Username); !ok || got != id {
		t.Errorf("the token authenticates as %s", user.Username)
	}
	if got := fmt.Sprint(user.Groups); got != "[system:bootstrappers "+Group+" system:authenticated]" {
		t.Errorf("the token authenticates with the groups %s", got)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: secretName(id)},
		&corev1.Secret{}); !apierrors.IsForbidden(err) {
		t.Errorf("reading a Secret with the token: %v", err)
	}
}

func ignoreUnauthorized(err error) error {
	if apierrors.IsUnauthorized(err) {
		return nil
	}
	return err
}

func TestRetryReusesTokenAndNextAttemptGetsNewToken(t *testing.T) {
	a, expires := attempt(), time.Now().Add(time.Hour).Truncate(time.Second)
	first := ensure(t, a, expires)
	again := ensure(t, a, expires.Add(time.Hour))
	if again.Value != first.Value || !again.Expires.Equal(expires) {
		t.Error("a retry got a different token")
	}
	a.Number++
	next := ensure(t, a, expires)
	if next.Value == first.Value || next.Value[7:] == first.Value[7:] {
		t.Error("the next attempt got the same secret")
	}
	if got := string(secretOf(t, first).Data[fieldExpiration]); got != expires.UTC().Format(time.RFC3339) {
		t.Errorf("expiration is written as %s", got)
	}
}

func TestUsedTokenIDIsNotOverwritten(t *testing.T) {
	c, a := env.Client(t), attempt()
	taken := &corev1.Secret{Type: tokenType, StringData: map[string]string{fieldID: a.tokenID(0),
		fieldSecret: "0123456789abcdef"}}
	taken.Namespace, taken.Name = "kube-system", secretName(a.tokenID(0))
	if err := c.Create(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	token := ensure(t, a, time.Now().Add(time.Hour))
	if !strings.HasPrefix(token.Value, a.tokenID(1)+".") {
		t.Errorf("%s, want the id of the next salt, %s", token, a.tokenID(1))
	}
	if again := ensure(t, a, time.Now().Add(time.Hour)); again.Value != token.Value {
		t.Error("a retry got a different token")
	}
	if err := (Tokens{Client: c}).Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(taken), &corev1.Secret{}); err != nil {
		t.Errorf("the other owner's token: %v", err)
	}
	if r, err := (Tokens{Client: c}).Lookup(t.Context(), a.tokenID(1)); r != nil || err != nil {
		t.Errorf("the attempt's token still exists: %+v %v", r, err)
	}
}

func TestDeleteOfMissingTokenSucceeds(t *testing.T) {
	a := attempt()
	tokens := Tokens{Client: env.Client(t)}
	ensure(t, a, time.Now().Add(time.Hour))
	for range 2 {
		if err := tokens.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLookupReturnsOwnerWithoutSecret(t *testing.T) {
	c, a, expires := env.Client(t), attempt(), time.Now().Add(time.Hour).Truncate(time.Second)
	tokens := Tokens{Client: c}
	token := ensure(t, a, expires)
	id, secret, _ := strings.Cut(token.Value, ".")
	r, err := tokens.Lookup(t.Context(), id)
	if err != nil || r == nil || r.Owner != a.String() || r.Machine != a.Machine || !r.ExpiryTime.Equal(expires) {
		t.Fatalf("%+v %v", r, err)
	}
	if strings.Contains(fmt.Sprintf("%+v", r), secret) {
		t.Error("the record contains the secret")
	}
	for _, id := range []string{"", "abcde", "../abc", "ABCDEF", "nobody"} {
		if r, err := tokens.Lookup(t.Context(), id); r != nil || err != nil {
			t.Errorf("Lookup(%q) = %+v, %v", id, r, err)
		}
	}
	for field, value := range map[string]string{fieldAuth: "false", fieldID: "xxxxxx"} {
		s := secretOf(t, token)
		good := s.Data[field]
		s.Data[field] = []byte(value)
		if err := c.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if r, err := tokens.Lookup(t.Context(), id); r != nil || err != nil {
			t.Errorf("with %s %s: %+v, %v", field, value, r, err)
		}
		s.Data[field] = good
		if err := c.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestErrorForInvalidTokenOmitsItsContent(t *testing.T) {
	c, a := env.Client(t), attempt()
	token := ensure(t, a, time.Now().Add(time.Hour))
	for field, value := range map[string]string{fieldExpiration: "tomorrow", fieldSecret: "too short"} {
		s := secretOf(t, token)
		good := s.Data[field]
		s.Data[field] = []byte(value)
		if err := c.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		_, err := Tokens{Client: c}.Ensure(t.Context(), a, Terms{Expires: time.Now()})
		if err == nil || strings.Contains(err.Error(), token.Value[7:]) || field == fieldSecret &&
			strings.Contains(err.Error(), value) {
			t.Errorf("with an invalid %s: %v", field, err)
		}
		s.Data[field] = good
		if err := c.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTokenPrintsWithoutSecret(t *testing.T) {
	token := Token{Value: "abcdef.0123456789abcdef"}
	encoded, err := json.Marshal(map[string]any{"token": token})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("created", "token", token)
	for _, text := range []string{
		fmt.Sprint(token), fmt.Sprintf("%+v %#v %q %x %s", token, token, token, token, &token), string(encoded), log.String(),
	} {
		if strings.Contains(text, "0123456789") || !strings.Contains(text, "abcdef") {
			t.Errorf("printed as %s", text)
		}
	}
}

func TestSecretsAreRandom(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		s, err := newSecret()
		if err != nil {
			t.Fatal(err)
		}
		if !tokenSecretForm.MatchString(s) || seen[s] {
			t.Fatalf("secret of %d characters, seen before: %v", len(s), seen[s])
		}
		seen[s] = true
	}
}

// Rule: token-extended-before-expiry.
func TestExtend(t *testing.T) {
	a, now := attempt(), time.Now().Truncate(time.Second)
	tokens := Tokens{Client: env.Client(t)}
	if ends, err := tokens.Extend(t.Context(), a, now, now.Add(time.Hour)); err != nil || !ends.IsZero() {
		t.Errorf("without a token: %s %v", ends, err)
	}
	token := ensure(t, a, now.Add(time.Hour))
	before := secretOf(t, token)
	ends, err := tokens.Extend(t.Context(), a, now.Add(30*time.Minute), now.Add(5*time.Hour))
	if err != nil || !ends.Equal(now.Add(time.Hour)) || secretOf(t, token).ResourceVersion != before.ResourceVersion {
		t.Errorf("a token that is valid long enough was changed, expires %s: %v", ends, err)
	}
	if ends, err = tokens.Extend(t.Context(), a, now.Add(2*time.Hour), now.Add(5*time.Hour)); err != nil ||
		!ends.Equal(now.Add(5*time.Hour)) {
		t.Fatalf("extended to %s: %v", ends, err)
	}
	if again := ensure(t, a, now); again.Value != token.Value || !again.Expires.Equal(ends) {
		t.Errorf("the token was replaced, or expires at %s", again.Expires)
	}
	emptied := secretOf(t, token)
	emptied.Data = nil
	if err := env.Client(t).Update(t.Context(), emptied); err != nil {
		t.Fatal(err)
	}
	if ends, err = tokens.Extend(t.Context(), a, now, now.Add(time.Hour)); err != nil || !ends.Equal(now.Add(time.Hour)) {
		t.Errorf("a token whose Secret was emptied expires at %s: %v", ends, err)
	}
}

// Other clients may write the number of the attempt.
//
// Rule: handwritten-counts-harmless.
func TestFollowsComparesOnlyLastHundredAttempts(t *testing.T) {
	a := attempt()
	a.Number = 1<<31 - 1
	last := a
	last.Number--
	if !a.MatchesRecentAttempt(last.tokenID(0)) || a.MatchesRecentAttempt("zzzzzz") {
		t.Error("the previous attempt is not recognized, or an unknown id is")
	}
}
