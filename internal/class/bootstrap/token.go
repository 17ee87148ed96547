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

// Where Kubernetes looks for bootstrap tokens, and what their Secrets hold: the fields of its bootstrap-token
// authenticator.
const (
	tokenNamespace = metav1.NamespaceSystem
	tokenType      = corev1.SecretType("bootstrap.kubernetes.io/token")

	fieldID         = "token-id"
	fieldSecret     = "token-secret"
	fieldExpiration = "expiration"
	fieldAuth       = "usage-bootstrap-authentication"
	fieldGroups     = "auth-extra-groups"
	fieldSigning    = "usage-bootstrap-signing"

	// annotationOwner records for which attempt of which Machine a token was made: "<uid>-<attempt>".
	annotationOwner = "machinist.dev/bootstrap-token-owner"
	// annotationMachine is namespace/name of that Machine, for people.
	annotationMachine = "machinist.dev/bootstrap-token-machine"

	// Group is what a machine's bootstrap token authenticates as, beside system:bootstrappers.
	Group = "system:bootstrappers:machinist"
)

// maxSalt bounds the search for a free token id; 36^6 ids make a second collision rare and a tenth one a sign of
// something else.
const maxSalt = 10

// Attempt names one attempt to launch one Machine.
type Attempt struct {
	Machine types.NamespacedName
	UID     types.UID
	Number  int32
}

// String returns the attempt's idempotency token, "<uid>-<attempt>".
func (a Attempt) String() string { return fmt.Sprintf("%s-%d", a.UID, a.Number) }

// tokenID derives the public half of the token, so that a retry finds the token it made before a crash.
func (a Attempt) tokenID(salt int) string {
	sum := sha256.Sum256([]byte(a.String() + "/" + strconv.Itoa(salt)))
	text := new(big.Int).SetBytes(sum[:]).Text(36)
	return text[:6]
}

// mostEarlier bounds how many earlier attempts are compared: the number may have been written by anybody, and
// certificates that tell of them are kept for an hour.
const mostEarlier = 100

// Follows reports whether the id may be that of a token made for an earlier attempt to launch the same Machine, one
// of the last hundred.
func (a Attempt) Follows(id string) bool {
	earlier := a
	for range min(a.Number-1, mostEarlier) {
		earlier.Number--
		for salt := range maxSalt {
			if earlier.tokenID(salt) == id {
				return true
			}
		}
	}
	return false
}

// Token is a bootstrap token of the target cluster. It prints as its id: half of Value is a secret.
type Token struct {
	// Value is "id.secret".
	Value   string
	Expires time.Time
}

// String returns the id of the token.
func (t Token) String() string {
	id, _, _ := strings.Cut(t.Value, ".")
	return "bootstrap token " + id
}

// Format implements fmt.Formatter for every verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }

// MarshalText implements encoding.TextMarshaler, which is what logs of JSON use.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue implements slog.LogValuer.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Tokens makes and deletes bootstrap tokens in the target cluster. Client must not cache: token Secrets are nobody
// else's business, and a stale one would be a lie about a credential.
type Tokens struct {
	Client client.Client
	// Groups are what a token authenticates as beside Group.
	Groups []string
}

// Terms are for how long, and for what else than joining, a token is good.
type Terms struct {
	Expires time.Time
	// Signing says that kube-controller-manager signs the ConfigMap cluster-info with the token, by which kubeadm join
	// knows the cluster.
	Signing bool
}

// Ensure returns the token of the attempt, making it if need be with the terms given. An existing one is returned as it
// is, whatever is left of its life.
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
	return Token{}, fmt.Errorf("no free bootstrap token id for machine %s after %d tries", a.Machine, maxSalt)
}

// Extend has the token of the attempt end at until, if it is there and ends before early, and returns when it ends:
// zero where there is none. What the instance has of it stays as it is.
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
	// One that does not parse ends nobody knows when.
	ends, err := time.Parse(time.RFC3339, string(secret.Data[fieldExpiration]))
	if err == nil && !ends.Before(early) {
		return ends, nil
	}
	before := secret.DeepCopy()
	if secret.Data == nil { // Somebody has emptied it.
		secret.Data = map[string][]byte{}
	}
	secret.Data[fieldExpiration] = []byte(until.UTC().Format(time.RFC3339))
	if err := t.Client.Patch(ctx, secret,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return time.Time{}, fmt.Errorf("extend bootstrap token %s of the target cluster: %w", id, err)
	}
	return until, nil
}

// ErrMayNotRead and ErrMayNotMake are wrapped by the error of whoever may not do so with tokens.
var (
	ErrMayNotRead = errors.New("not allowed to read bootstrap tokens")
	ErrMayNotMake = errors.New("not allowed to make bootstrap tokens")
)

// Delete removes the token of the attempt, if it is there, and no other.
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

// ID returns the public half of the attempt's token. Where there is none (any more) it is the id that a token of the
// attempt would have now, which nobody else's has.
func (t Tokens) ID(ctx context.Context, a Attempt) (string, error) {
	id, _, err := t.find(ctx, a)
	return id, err
}

// find returns the token of the attempt, nil if it is not there, and its id: empty if all that it may have are taken.
func (t Tokens) find(ctx context.Context, a Attempt) (id string, found *metav1.PartialObjectMetadata, err error) {
	for salt := range maxSalt {
		id := a.tokenID(salt)
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := t.Client.Get(ctx, client.ObjectKey{Namespace: tokenNamespace, Name: secretName(id)}, meta)
		if apierrors.IsNotFound(err) {
			// Salts are raised one by one: where one is missing, none after it was used. (If the token of an earlier salt
			// was deleted meanwhile, the expiry removes ours.)
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

// newSecret returns the private half of a token: [a-z0-9]{16} is the form that the authenticator demands, 82 bits.
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
