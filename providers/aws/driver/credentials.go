package driver

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
)

// These are the keys of a Secret with credentials. A Secret contains an access key, or no access key and
// processIdentity.
const (
	keyAccessKey    = "accessKeyID"
	keySecretKey    = "secretAccessKey"
	keySessionToken = "sessionToken"
	// keyProcess is "true" if the process's own credentials are used instead of an access key.
	keyProcess = "processIdentity"
	// keyRole is the ARN of a role that is assumed with the credentials above.
	keyRole       = "roleARN"
	keyExternalID = "externalID"
)

var (
	accessKeyFormat  = regexp.MustCompile(`^[A-Z0-9]{16,128}$`)
	secretKeyFormat  = regexp.MustCompile(`^[A-Za-z0-9/+=]{16,128}$`)
	tokenFormat      = regexp.MustCompile(`^[\x21-\x7e]+$`)
	roleFormat       = regexp.MustCompile(`^arn:aws[-a-z]*:iam::([0-9]{12}):role/([\x21-\x7e]{1,511}/)?[\w+=,.@-]{1,64}$`)
	externalIDFormat = regexp.MustCompile(`^[\w+=,.@:/-]{2,}$`)
)

const maxValueBytes = 8192

// sessionName is the name of the sessions of assumed roles, which CloudTrail shows.
const sessionName = "machinist"

// account contains parsed credentials.
type account struct {
	accessKey, secretKey, sessionToken string
	process                            bool
	role, externalID                   string
}

// parseCredentials trims white space, because Secrets created from files end with a newline. Errors name the invalid
// key but never contain its value.
func parseCredentials(c provider.Credentials) (account, error) {
	if c.IsEmpty() {
		return account{}, provider.Errorf(provider.Unauthenticated,
			"the credentials are missing; create a Secret with the keys %s and %s", keyAccessKey, keySecretKey)
	}
	known := []string{keyAccessKey, keySecretKey, keySessionToken, keyProcess, keyRole, keyExternalID}
	for _, key := range c.Keys() {
		if !slices.Contains(known, key) {
			return account{}, malformed("the credentials have the unknown key %.128q; the known keys are %s", key,
				strings.Join(known, ", "))
		}
	}
	get := func(key string) (string, bool) {
		value, has := c.Get(key)
		return strings.TrimSpace(string(value.Reveal())), has
	}
	var a account
	for _, field := range []struct {
		key    string
		value  *string
		format *regexp.Regexp
		what   string
	}{
		{keyAccessKey, &a.accessKey, accessKeyFormat, "the ID of an access key"},
		{keySecretKey, &a.secretKey, secretKeyFormat, "the secret of an access key"},
		{keySessionToken, &a.sessionToken, tokenFormat, "a session token"},
		{keyRole, &a.role, roleFormat, "the ARN of a role"},
		{keyExternalID, &a.externalID, externalIDFormat, "an external ID"},
	} {
		value, has := get(field.key)
		if has && (len(value) > maxValueBytes || !field.format.MatchString(value)) {
			return account{}, malformed("the key %q of the credentials must hold %s", field.key, field.what)
		}
		*field.value = value
	}
	if process, has := get(keyProcess); has {
		if process != "true" {
			return account{}, malformed("the key %q of the credentials must hold \"true\"", keyProcess)
		}
		a.process = true
	}
	switch {
	case a.process && (a.accessKey != "" || a.secretKey != "" || a.sessionToken != ""):
		return account{}, malformed("the credentials have both %q and an access key", keyProcess)
	case !a.process && a.accessKey == "":
		return account{}, malformed("the key %q of the credentials is missing", keyAccessKey)
	case !a.process && a.secretKey == "":
		return account{}, malformed("the key %q of the credentials is missing", keySecretKey)
	case a.externalID != "" && a.role == "":
		return account{}, malformed("the key %q of the credentials needs the key %q", keyExternalID, keyRole)
	}
	return a, nil
}

func malformed(format string, args ...any) error {
	return provider.Errorf(provider.InvalidArgument, format, args...)
}

func (a account) accountID() string {
	if parts := roleFormat.FindStringSubmatch(a.role); parts != nil {
		return parts[1]
	}
	return ""
}

// Grant allows a Secret to use the process's own credentials.
type Grant struct {
	// Namespace is the namespace of the Secret.
	Namespace string
	// Role is the ARN of the role in the Secret, or empty for the process's own role.
	Role string
}

// ParseGrant parses a text in the format NAMESPACE or NAMESPACE=ROLE-ARN.
func ParseGrant(text string) (Grant, error) {
	namespace, role, hasRole := strings.Cut(text, "=")
	if len(validation.IsDNS1123Label(namespace)) > 0 || hasRole && !roleFormat.MatchString(role) {
		return Grant{}, fmt.Errorf("%.256q is not NAMESPACE or NAMESPACE=ROLE-ARN, such as "+
			"team-a=arn:aws:iam::111122223333:role/machinist", text)
	}
	return Grant{namespace, role}, nil
}

// checkGrant returns an error if the account uses the process's own credentials but has no grant for them.
func (o Options) checkGrant(a account, namespace string) error {
	switch {
	case !a.process:
		return nil
	case o.Process == nil:
		return provider.Errorf(provider.InvalidArgument,
			"the process has no credentials of its own, so the key %q of the "+
				"credentials cannot be used", keyProcess)
	case !slices.Contains(o.ProcessFor, Grant{Namespace: namespace, Role: a.role}):
		return provider.Errorf(provider.InvalidArgument,
			"Secrets in namespace %q may not use the credentials of the process "+
				"with the role %q; an administrator can allow this with --aws-process-identity-for", namespace, a.role)
	}
	return nil
}

// provider returns the credentials for a region.
func (a account) provider(o Options, config aws.Config) aws.CredentialsProvider {
	base := o.Process
	if !a.process {
		base = credentials.NewStaticCredentialsProvider(a.accessKey, a.secretKey, a.sessionToken)
	}
	if a.role == "" {
		return base
	}
	config.Credentials = base
	assumed := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(config), a.role,
		func(assume *stscreds.AssumeRoleOptions) {
			assume.RoleSessionName = sessionName
			if a.externalID != "" {
				assume.ExternalID = aws.String(a.externalID)
			}
		})
	return aws.NewCredentialsCache(signIn{assumed})
}

// signIn marks the errors of AssumeRole, which are not errors of the call that needs the credentials.
type signIn struct{ aws.CredentialsProvider }

// signInError is an error of AssumeRole.
type signInError struct{ error }

func (e signInError) Unwrap() error { return e.error }

// Retrieve implements aws.CredentialsProvider.
func (s signIn) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := s.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return c, signInError{err}
	}
	return c, nil
}
