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

// These are the namespace, type and fields of the Secrets in which Kubernetes stores bootstrap tokens. The API server's
// bootstrap token authenticator reads these fields.
const (
	tokenNamespace = metav1.NamespaceSystem
	tokenType      = corev1.SecretType("bootstrap.kubernetes.io/token")

	fieldID         = "token-id"
	fieldSecret     = "token-secret"
	fieldExpiration = "expiration"
	fieldAuth       = "usage-bootstrap-authentication"
	fieldGroups     = "auth-extra-groups"
	fieldSigning    = "usage-bootstrap-signing"

	// annotationOwner records the launch attempt for which the token was created, in the form "<uid>-<attempt>".
	annotationOwner = "machinist.dev/bootstrap-token-owner"
	// annotationMachine records the namespace/name of that Machine.
	annotationMachine = "machinist.dev/bootstrap-token-machine"

	// Group is the group of clients that authenticate with a machine's bootstrap token, in addition to
	// system:bootstrappers.
	Group = "system:bootstrappers:machinist"
)

// maxSalt is the highest salt with which the code tries to find an unused token id. There are 36^6 ids. Two
// collisions in a row are therefore rare, and ten collisions in a row must have another cause.
const maxSalt = 10

// Attempt identifies one attempt to launch a Machine.
type Attempt struct {
	Machine types.NamespacedName
	UID     types.UID
	Number  int32
}

// String returns the attempt's idempotency token, "<uid>-<attempt>".
func (a Attempt) String() string { return fmt.Sprintf("%s-%d", a.UID, a.Number) }

// tokenID derives the public half of the token from the attempt. Therefore, after a crash, a retry finds the token
// that was created before the crash.
func (a Attempt) tokenID(salt int) string {
	sum := sha256.Sum256([]byte(a.String() + "/" + strconv.Itoa(salt)))
	text := new(big.Int).SetBytes(sum[:]).Text(36)
	return text[:6]
}

// maxEarlierAttempts is the maximum number of earlier attempts that Follows considers. A limit is needed because
// the attempt number comes from a status that other clients can write. Kubernetes keeps a certificate signing
// request for about an hour, so it may name the token of an earlier attempt.
const maxEarlierAttempts = 100

// Follows reports whether the token id may belong to an earlier attempt to launch the same Machine. It considers
// the last hundred attempts.
func (a Attempt) Follows(id string) bool {
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

// Token is a bootstrap token of the target cluster. If a Token is printed, only its id appears, because half of Value
// is a secret.
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

// Tokens creates bootstrap tokens in the target cluster, extends their lifetime, and deletes them. Client must not
// use a cache: no other controller needs the Secrets of tokens, and an outdated read could return an outdated
// credential.
type Tokens struct {
	Client client.Client
	// Groups lists the groups of clients that authenticate with a token. Such clients also belong to Group.
	Groups []string
}

// Terms are the properties of a new token.
type Terms struct {
	Expires time.Time
	// Signing makes kube-controller-manager sign the ConfigMap cluster-info with the token. kubeadm join uses the
	// signature to verify the cluster.
	Signing bool
}

// Ensure returns the token of the attempt. If there is no token, Ensure creates one with the given terms. It returns an
// existing token unchanged, even if the token is about to expire.
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

// Extend sets a new expiration for the token of the attempt, unless the current expiration is not before the
// parameter early. The parameter early is the earliest acceptable expiration, and until is the new expiration.
// Extend returns the expiration of the token, or the zero time if there is no token. The token's value does not
// change, so the copy on the instance stays valid.
func (t Tokens) Extend(ctx context.Context, a Attempt, early, until time.Time) (time.Time, error) {
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
	// If the expiration cannot be parsed, the token is extended too.
	ends, err := time.Parse(time.RFC3339, string(secret.Data[fieldExpiration]))
	if err == nil && !ends.Before(early) {
		return ends, nil
	}
	before := secret.DeepCopy()
	if secret.Data == nil { // Another client has emptied the Secret.
		secret.Data = map[string][]byte{}
	}
	secret.Data[fieldExpiration] = []byte(until.UTC().Format(time.RFC3339))
	if err := t.Client.Patch(ctx, secret,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return time.Time{}, fmt.Errorf("extend bootstrap token %s of the target cluster: %w", id, err)
	}
	return until, nil
}

// ErrMayNotRead and ErrMayNotMake mean that the API server forbids the client of Tokens to read or create the Secrets
// of tokens. Errors of Tokens wrap these two errors.
var (
	ErrMayNotRead = errors.New("not allowed to read bootstrap tokens")
	ErrMayNotMake = errors.New("not allowed to create bootstrap tokens")
)

// Delete deletes the token of the attempt if it exists. It never deletes the token of another attempt.
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

// ID returns the public half of the attempt's token. If the token does not exist, or no longer exists, ID returns the
// id that a new token of the attempt would get. No other token has that id.
func (t Tokens) ID(ctx context.Context, a Attempt) (string, error) {
	id, _, err := t.find(ctx, a)
	return id, err
}

// find returns the token of the attempt and the token's id. If the token does not exist, find returns nil instead
// of the token. The id is empty if all possible ids of the attempt are used by other tokens.
func (t Tokens) find(ctx context.Context, a Attempt) (id string, found *metav1.PartialObjectMetadata, err error) {
	for salt := range maxSalt {
		id := a.tokenID(salt)
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := t.Client.Get(ctx, client.ObjectKey{Namespace: tokenNamespace, Name: secretName(id)}, meta)
		if apierrors.IsNotFound(err) {
			// Ensure tries the salts in order. Therefore, if no token has this salt, Ensure has not created a token
			// with a later salt. There is one exception: another attempt's token had this salt and has been deleted
			// since then. In this case, the token with the later salt is not found here, and Kubernetes deletes it
			// when it expires.
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

// newSecret returns a new private half of a token. The authenticator requires the form [a-z0-9]{16}, which contains
// 82 bits of randomness.
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
