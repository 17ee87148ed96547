package bootstrap

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// userPrefix is what the API server calls the holder of a bootstrap token, followed by the token's id.
const userPrefix = "system:bootstrap:"

var tokenIDForm = regexp.MustCompile(`^[a-z0-9]{6}$`)

// TokenIDOf returns the id of the token with which a user of that name authenticated; false if it was none.
func TokenIDOf(username string) (id string, ok bool) {
	id, ok = strings.CutPrefix(username, userPrefix)
	return id, ok && tokenIDForm.MatchString(id)
}

// Record is what the target cluster knows about a bootstrap token, without its secret half.
type Record struct {
	// Owner is the attempt that the token was made for, as Attempt.String writes it; empty for a token that is no
	// Machine's.
	Owner string
	// Machine is the Machine of that attempt, where to look for it.
	Machine types.NamespacedName
	// Expires is when the token ends. Zero where it has no valid end: Machinist makes no such token.
	Expires time.Time
}

// Lookup returns the record of a token by its id, or nil when no such token authenticates anybody.
func (t Tokens) Lookup(ctx context.Context, id string) (*Record, error) {
	if !tokenIDForm.MatchString(id) {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := t.Client.Get(ctx, client.ObjectKey{Namespace: tokenNamespace, Name: secretName(id)}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read bootstrap token %s of the target cluster: %w", id, err)
	}
	if secret.Type != tokenType || !secret.DeletionTimestamp.IsZero() ||
		string(secret.Data[fieldID]) != id || string(secret.Data[fieldAuth]) != "true" {
		return nil, nil
	}
	r := &Record{Owner: secret.Annotations[annotationOwner]}
	r.Machine.Namespace, r.Machine.Name, _ = strings.Cut(secret.Annotations[annotationMachine], "/")
	if expires, err := time.Parse(time.RFC3339, string(secret.Data[fieldExpiration])); err == nil {
		r.Expires = expires
	}
	return r, nil
}

func secretName(id string) string { return "bootstrap-token-" + id }
