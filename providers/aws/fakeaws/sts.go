package fakeaws

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"slices"
	"time"
)

// assumeRole issues temporary credentials. https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
func (c *call) assumeRole() (answer, *failure) {
	arn, name, external, seconds := c.params.text("RoleArn"), c.params.text("RoleSessionName"),
		c.params.text("ExternalId"), c.params.number("DurationSeconds")
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	i := slices.IndexFunc(c.aws.options.Roles, func(r Role) bool { return r.ARN == arn && r.ExternalID == external })
	if i < 0 {
		return answer{}, fail(http.StatusForbidden, "AccessDenied",
			"User is not authorized to perform: sts:AssumeRole on "+
				"resource: %s", arn)
	}
	return c.issue("AssumeRole", arn, name, seconds)
}

// assumeRoleWithWebIdentity issues temporary credentials for the token of a web identity.
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
func (c *call) assumeRoleWithWebIdentity() (answer, *failure) {
	arn, name, token, seconds := c.params.text("RoleArn"), c.params.text("RoleSessionName"),
		c.params.text("WebIdentityToken"), c.params.number("DurationSeconds")
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	i := slices.IndexFunc(c.aws.options.Roles, func(r Role) bool { return r.ARN == arn })
	if i < 0 || c.aws.options.Roles[i].WebIdentityToken == "" || c.aws.options.Roles[i].WebIdentityToken != token {
		return answer{}, badRequest("InvalidIdentityToken", "The token is not valid.")
	}
	return c.issue("AssumeRoleWithWebIdentity", arn, name, seconds)
}

func (c *call) issue(action, arn, name string, seconds int) (answer, *failure) {
	if seconds == 0 {
		seconds = 3600
	}
	key := "ASIA" + random(8)
	s := session{secret: random(20), token: random(40), role: arn,
		until: c.aws.now().Add(time.Duration(seconds) * time.Second)}
	c.aws.sessions[key] = s
	user := arn + "/" + name
	return c.result(action, parent("Credentials", leaf("AccessKeyId", key), leaf("SecretAccessKey", s.secret),
		leaf("SessionToken", s.token), leaf("Expiration", s.until)),
		parent("AssumedRoleUser", leaf("AssumedRoleId", "AROA:"+name), leaf("Arn", user)))
}

func (c *call) getCallerIdentity() (answer, *failure) {
	if f := c.params.check(); f != nil {
		return answer{}, f
	}
	arn := c.aws.iamARN("user/machinist")
	if s, temporary := c.aws.sessions[c.key]; temporary {
		arn = s.role
	}
	return c.result("GetCallerIdentity", leaf("UserId", "AIDAMACHINIST"), leaf("Account", c.aws.options.Account),
		leaf("Arn", arn))
}

// result returns an answer in the format of STS.
func (c *call) result(action string, children ...node) (answer, *failure) {
	return answer{status: http.StatusOK, body: document(action+"Response", namespaceSTS, parent(action+"Result",
		children...), parent("ResponseMetadata", leaf("RequestId", c.aws.id("req"))))}, nil
}

// ExpireSessions makes all temporary credentials expire.
func (a *AWS) ExpireSessions() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, s := range a.sessions {
		s.until = a.now().Add(-time.Second)
		a.sessions[key] = s
	}
}

func random(bytes int) string {
	data := make([]byte, bytes)
	_, _ = rand.Read(data) // Never fails.
	return hex.EncodeToString(data)
}
