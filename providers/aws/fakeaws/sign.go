package fakeaws

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxSkew is the maximum age of a signature.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
const maxSkew = 5 * time.Minute

var authorization = regexp.MustCompile(
	`^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$`)

// session is a set of temporary credentials.
type session struct {
	secret, token, role string
	until               time.Time
}

// authenticate checks the signature of the request. AssumeRoleWithWebIdentity is not signed, because its token
// proves the identity.
func (c *call) authenticate() *failure {
	if c.action == "AssumeRoleWithWebIdentity" {
		return nil
	}
	parts := authorization.FindStringSubmatch(c.request.Header.Get("Authorization"))
	if parts == nil {
		return fail(http.StatusForbidden, c.missingCode(), "The request has no valid signature.")
	}
	key, date, region, service, headers, signature := parts[1], parts[2], parts[3], parts[4],
		strings.Split(parts[5], ";"), parts[6]
	signed, err := time.Parse("20060102T150405Z", c.request.Header.Get("X-Amz-Date"))
	now := c.aws.now().Add(c.aws.options.Semantics.ClockSkew)
	switch {
	case err != nil || signed.Format("20060102") != date:
		return fail(http.StatusForbidden, c.missingCode(), "The date of the signature is not valid.")
	case now.Sub(signed).Abs() > maxSkew:
		return c.expired("Request has expired. Signature not within 5 minutes of the current time.")
	case region != c.aws.options.Region:
		return fail(http.StatusUnauthorized, "AuthFailure", "The signature is for another region.")
	case service != map[protocol]string{protocolEC2: "ec2", protocolQuery: "sts", protocolJSON: "sqs"}[c.protocol]:
		return fail(http.StatusUnauthorized, "AuthFailure", "The signature is for another service.")
	}
	secret, f := c.secretOf(key, now)
	if f != nil {
		return f
	}
	if !hmac.Equal([]byte(signature), []byte(c.sign(secret, date, region, service, headers))) {
		return c.unknown("The signature does not match the secret key.")
	}
	c.key = key
	return nil
}

// secretOf returns the secret of an access key.
func (c *call) secretOf(key string, now time.Time) (string, *failure) {
	token := c.request.Header.Get("X-Amz-Security-Token")
	if key == c.aws.options.AccessKey && token == "" {
		return c.aws.options.SecretKey, nil
	}
	s, known := c.aws.sessions[key]
	switch {
	case !known || s.token != token:
		return "", c.unknown("The access key does not exist.")
	case now.After(s.until):
		return "", c.expired("The security token is expired.")
	}
	return s.secret, nil
}

// unknown is the refusal of a signature. The codes of authentication errors differ between services.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
// https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html
func (c *call) unknown(message string) *failure {
	if c.protocol == protocolEC2 {
		return fail(http.StatusUnauthorized, "AuthFailure",
			"AWS was not able to validate the provided access credentials")
	}
	return fail(http.StatusForbidden, "InvalidClientTokenId", "%s", message)
}

func (c *call) expired(message string) *failure {
	if c.protocol == protocolEC2 {
		return badRequest("RequestExpired", "%s", message)
	}
	return fail(http.StatusForbidden, "ExpiredToken", "%s", message)
}

func (c *call) missingCode() string {
	if c.protocol == protocolEC2 {
		return "AuthFailure"
	}
	return "MissingAuthenticationToken"
}

// sign returns the signature of the request.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
func (c *call) sign(secret, date, region, service string, headers []string) string {
	r := c.request
	var canonical strings.Builder
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	path := (&url.URL{Path: r.URL.Path}).EscapedPath()
	if path == "" {
		path = "/"
	}
	canonical.WriteString(r.Method + "\n" + path + "\n" + query + "\n")
	slices.Sort(headers)
	for _, name := range headers {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = r.Header.Get("Content-Length")
			if value == "" {
				value = itoa(len(c.payload))
			}
		}
		canonical.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	hash := sha256.Sum256(c.payload)
	canonical.WriteString("\n" + strings.Join(headers, ";") + "\n" + hex.EncodeToString(hash[:]))
	request := sha256.Sum256([]byte(canonical.String()))
	scope := date + "/" + region + "/" + service + "/aws4_request"
	toSign := "AWS4-HMAC-SHA256\n" + r.Header.Get("X-Amz-Date") + "\n" + scope + "\n" + hex.EncodeToString(request[:])
	key := []byte("AWS4" + secret)
	for _, part := range []string{date, region, service, "aws4_request", toSign} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}
