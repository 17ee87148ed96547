package bootstrap

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// These are the namespace, type and fields of Kubernetes' bootstrap token Secrets, which the API server's authenticator
// reads.
const (
	tokenNamespace = metav1.NamespaceSystem
	tokenType      = corev1.SecretType("bootstrap.kubernetes.io/token")

	fieldID         = "token-id"
	fieldSecret     = "token-secret"
	fieldExpiration = "expiration"
	fieldAuth       = "usage-bootstrap-authentication"
	fieldGroups     = "auth-extra-groups"
	fieldSigning    = "usage-bootstrap-signing"

	// annotationOwner records the launch attempt of the token in the form "<uid>-<attempt>".
	annotationOwner   = "machinist.dev/bootstrap-token-owner"
	annotationMachine = "machinist.dev/bootstrap-token-machine"

	// Group is the group of clients with a machine's bootstrap token, in addition to system:bootstrappers.
	Group = "system:bootstrappers:machinist"
)

// maxSalt is how many token ids are tried for one attempt. There are 36^6 ids, so ten used ids in a row are not a
// coincidence but the result of a bug.
const maxSalt = 10

// Attempt identifies one attempt to launch a Machine.
type Attempt struct {
	Machine types.NamespacedName
	UID     types.UID
	Number  int32
}

// String returns the attempt's idempotency token, "<uid>-<attempt>".
func (a Attempt) String() string { return fmt.Sprintf("%s-%d", a.UID, a.Number) }

// tokenID derives the public half of the token from the attempt, so that a retry after a crash finds the token.
func (a Attempt) tokenID(salt int) string {
	sum := sha256.Sum256([]byte(a.String() + "/" + strconv.Itoa(salt)))
	text := new(big.Int).SetBytes(sum[:]).Text(36)
	return text[:6]
}

// maxEarlierAttempts is how many earlier attempts MatchesRecentAttempt considers, because other clients can write the
// attempt number. A certificate signing request of an earlier attempt exists for about an hour.
const maxEarlierAttempts = 100

// MatchesRecentAttempt reports whether the token id may belong to one of the last hundred attempts to launch the same
// Machine.
func (a Attempt) MatchesRecentAttempt(id string) bool {
	earlier := a
	for range min(a.Number-1, maxEarlierAttempts) {
		earlier.Number--
		for salt := range maxSalt {
			if earlier.tokenID(salt) == id {
				return true
			}
		}
	}
	return false
}

// Token is a bootstrap token of the target cluster. Printing a Token shows only its ID, because the rest is secret.
type Token struct {
	// Value has the form "id.secret".
	Value   string
	Expires time.Time
}

// String returns the id of the token.
func (t Token) String() string {
	id, _, _ := strings.Cut(t.Value, ".")
	return "bootstrap token " + id
}

// Format implements fmt.Formatter: every verb prints only the id.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }

// MarshalText implements encoding.TextMarshaler, which JSON logs use.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Tokens creates, extends and deletes bootstrap tokens in the target cluster. Client must not use a cache, because a
// cache could return an outdated token.
type Tokens struct {
	Client client.Client
	// Groups are the groups of clients with a token, in addition to Group.
	Groups []string
}

// Terms define the lifetime and the uses of a new token.
type Terms struct {
	Expires time.Time
	// Signing is true if kube-controller-manager must sign the ConfigMap cluster-info with the token. kubeadm join
	// verifies the cluster by this signature.
	Signing bool
}

// Ensure returns the token of the attempt, or creates it with the given terms. An existing token stays unchanged, even
// if it expires soon.
func (t Tokens) Ensure(ctx context.Context, a Attempt, terms Terms) (Token, error) {
	for salt := range maxSalt {
		id := a.tokenID(salt)
		secret, err := newSecret()
		if err != nil {
			return Token{}, err
		}
		obj := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   tokenNamespace,
				Name:        secretName(id),
				Annotations: map[string]string{annotationOwner: a.String(), annotationMachine: a.Machine.String()},
			},
			Type: tokenType,
			StringData: map[string]string{
				fieldID:         id,
				fieldSecret:     secret,
				fieldExpiration: terms.Expires.UTC().Format(time.RFC3339),
				fieldAuth:       "true",
				fieldGroups:     strings.Join(append([]string{Group}, t.Groups...), ","),
			},
		}
		if terms.Signing {
			obj.StringData[fieldSigning] = "true"
		}
		err = t.Client.Create(ctx, obj)
		if err == nil {
			return Token{Value: id + "." + secret, Expires: terms.Expires}, nil
		}
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w: %w", ErrMayNotMake, err)
		}
		if !apierrors.IsAlreadyExists(err) {
			return Token{}, fmt.Errorf("create bootstrap token %s in the target cluster: %w", id, err)
		}
		existing := &corev1.Secret{}
		if err := t.Client.Get(ctx, client.ObjectKeyFromObject(obj), existing); err != nil {
			return Token{}, fmt.Errorf("read bootstrap token %s of the target cluster: %w", id, err)
		}
		if existing.Annotations[annotationOwner] != a.String() {
			continue
		}
		if !existing.DeletionTimestamp.IsZero() {
			return Token{}, fmt.Errorf("bootstrap token %s of the target cluster is being deleted", id)
		}
		expiration, err := time.Parse(time.RFC3339, string(existing.Data[fieldExpiration]))
		if err != nil {
			return Token{}, fmt.Errorf("bootstrap token %s of the target cluster has no valid expiration: %w", id, err)
		}
		if !tokenSecretForm.Match(existing.Data[fieldSecret]) {
			return Token{}, fmt.Errorf("bootstrap token %s of the target cluster has no valid %s", id, fieldSecret)
		}
		return Token{Value: id + "." + string(existing.Data[fieldSecret]), Expires: expiration}, nil
	}
	return Token{}, fmt.Errorf("no free bootstrap token id for machine %s after %d attempts", a.Machine, maxSalt)
}

// Extend postpones the expiration of the attempt's token. If the token is valid at the time minimum anyway, Extend does
// not change it. It returns the token's expiration, or the zero time if there is no token. The value of the token does
// not change, so the copy on the instance stays valid.
func (t Tokens) Extend(ctx context.Context, a Attempt, minimum, extended time.Time) (time.Time, error) {
	id, found, err := t.find(ctx, a)
	if err != nil || found == nil {
		return time.Time{}, err
	}
	secret := &corev1.Secret{}
	if err := t.Client.Get(ctx, client.ObjectKeyFromObject(found), secret); err != nil {
		return time.Time{}, client.IgnoreNotFound(fmt.Errorf("read bootstrap token %s of the target cluster: %w", id, err))
	}
	if secret.Annotations[annotationOwner] != a.String() || !secret.DeletionTimestamp.IsZero() {
		return time.Time{}, nil
	}
	// An invalid expiration is replaced too.
	ends, err := time.Parse(time.RFC3339, string(secret.Data[fieldExpiration]))
	if err == nil && !ends.Before(minimum) {
		return ends, nil
	}
	before := secret.DeepCopy()
	if secret.Data == nil { // Another client has emptied the Secret.
		secret.Data = map[string][]byte{}
	}
	secret.Data[fieldExpiration] = []byte(extended.UTC().Format(time.RFC3339))
	if err := t.Client.Patch(ctx, secret,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return time.Time{}, fmt.Errorf("extend bootstrap token %s of the target cluster: %w", id, err)
	}
	return extended, nil
}

// ErrMayNotRead and ErrMayNotMake mean that the API server forbids reading or creating the Secrets of tokens. The
// methods of Tokens return errors that wrap ErrMayNotRead or ErrMayNotMake.
var (
	ErrMayNotRead = errors.New("not allowed to read bootstrap tokens")
	ErrMayNotMake = errors.New("not allowed to create bootstrap tokens")
)

// Delete deletes the token of the attempt if it exists. Tokens of other attempts stay.
func (t Tokens) Delete(ctx context.Context, a Attempt) error {
	id, found, err := t.find(ctx, a)
	if err != nil || found == nil {
		return err
	}
	err = t.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete bootstrap token %s of the target cluster: %w", id, err)
	}
	return nil
}

// ID returns the public half of the attempt's token. If the token does not exist, ID returns the id that Ensure would
// choose for it.
func (t Tokens) ID(ctx context.Context, a Attempt) (string, error) {
	id, _, err := t.find(ctx, a)
	return id, err
}

// find returns the token of the attempt and its id. If the attempt has no token, found is nil, and id is the id for a
// new token. The id is empty if other tokens use all possible ids.
func (t Tokens) find(ctx context.Context, a Attempt) (id string, found *metav1.PartialObjectMetadata, err error) {
	for salt := range maxSalt {
		id := a.tokenID(salt)
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := t.Client.Get(ctx, client.ObjectKey{Namespace: tokenNamespace, Name: secretName(id)}, meta)
		if apierrors.IsNotFound(err) {
			// Ensure tries the salts in order, so normally no token of the attempt has a later salt. The exception:
			// Ensure skipped this id because another attempt had a token with it, and that token was deleted since.
			// Kubernetes deletes the token with the later salt when it expires.
			return id, nil, nil
		}
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w: %w", ErrMayNotRead, err)
		}
		if err != nil {
			return "", nil, fmt.Errorf("read bootstrap token %s of the target cluster: %w", id, err)
		}
		if meta.Annotations[annotationOwner] == a.String() {
			return id, meta, nil
		}
	}
	return "", nil, nil
}

var tokenSecretForm = regexp.MustCompile(`^[a-z0-9]{16}$`)

// newSecret returns the private half of a token. The authenticator requires the form [a-z0-9]{16}, with 82 bits of
// randomness.
func newSecret() (string, error) {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for range 16 {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
		if err != nil {
			return "", fmt.Errorf("read random bytes for a bootstrap token: %w", err)
		}
		b.WriteByte(alphabet[n.Int64()])
	}
	return b.String(), nil
}
