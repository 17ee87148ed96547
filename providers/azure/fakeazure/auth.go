package fakeazure

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const tokenLife = time.Hour

// serveTokens issues access tokens to applications like the identity platform.
// https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
func (a *Azure) serveTokens(w http.ResponseWriter, r *http.Request) bool {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	reply := func(status int, body object) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	base := "https://" + r.Host + "/" + a.options.Tenant
	switch {
	case len(parts) < 2 || strings.EqualFold(parts[0], "subscriptions"):
		return false
	case !strings.EqualFold(parts[0], a.options.Tenant):
		reply(http.StatusBadRequest, object{"error": "invalid_tenant", "error_description": "AADSTS90002: Tenant '" +
			parts[0] + "' not found."})
	case strings.HasSuffix(r.URL.Path, "/v2.0/.well-known/openid-configuration"):
		reply(http.StatusOK, object{
			"issuer": base + "/v2.0", "authorization_endpoint": base + "/oauth2/v2.0/authorize", "token_endpoint": base +
				"/oauth2/v2.0/token",
		})
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/oauth2/v2.0/token"):
		status, body := a.signIn(r, base)
		reply(status, body)
	default:
		return false
	}
	return true
}

func (a *Azure) signIn(r *http.Request, authority string) (int, object) {
	refuse := func(status int, code, description string) (int, object) {
		return status, object{"error": code, "error_description": description, "error_codes": []int{}, "trace_id": uuid(),
			"correlation_id": uuid()}
	}
	r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		return refuse(http.StatusBadRequest, "invalid_request", "AADSTS900144: The request body cannot be read.")
	}
	switch {
	case r.PostForm.Get("grant_type") != "client_credentials":
		return refuse(http.StatusBadRequest, "unsupported_grant_type",
			"AADSTS70003: The app requested an unsupported grant type.")
	case !strings.Contains(r.PostForm.Get("scope"), "/.default"):
		return refuse(http.StatusBadRequest, "invalid_scope", "AADSTS1002012: The provided value for scope is not valid.")
	case !strings.EqualFold(r.PostForm.Get("client_id"), a.options.Client):
		return refuse(http.StatusBadRequest, "unauthorized_client",
			"AADSTS700016: Application was not found in the directory.")
	}
	if err := a.authenticate(r, authority); err != nil {
		return refuse(http.StatusUnauthorized, "invalid_client", err.Error())
	}
	token := "fake." + uuid() + "." + uuid()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens[token] = time.Now().Add(a.options.Semantics.TokenLife)
	return http.StatusOK, object{"token_type": "Bearer", "expires_in": int(tokenLife.Seconds()),
		"ext_expires_in": int(tokenLife.Seconds()), "access_token": token}
}

// RevokeTokens makes the fake Azure refuse all access tokens that it has issued. The credentials stay valid.
func (a *Azure) RevokeTokens() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.tokens)
}

// authenticate checks the client's secret or its signed assertion.
// https://learn.microsoft.com/entra/identity-platform/certificate-credentials
// https://learn.microsoft.com/entra/workload-id/workload-identity-federation
func (a *Azure) authenticate(r *http.Request, authority string) error {
	assertion := r.PostForm.Get("client_assertion")
	if assertion == "" {
		if a.options.Secret == "" || r.PostForm.Get("client_secret") != a.options.Secret {
			return errors.New("AADSTS7000215: Invalid client secret provided.")
		}
		return nil
	}
	if r.PostForm.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
		return errors.New("AADSTS50027: The type of the assertion is not supported.")
	}
	claims := &jwt.RegisteredClaims{}
	methods := jwt.WithValidMethods([]string{"RS256", "PS256"})
	if key := a.options.Certificate; key != nil {
		_, err := jwt.ParseWithClaims(assertion, claims, func(*jwt.Token) (any, error) { return key, nil }, methods,
			jwt.WithExpirationRequired())
		if err == nil && claims.Issuer == a.options.Client && claims.Subject == a.options.Client &&
			slices.ContainsFunc(claims.Audience, func(to string) bool { return strings.HasPrefix(to, authority) }) {
			return nil
		}
	}
	if key := a.options.FederatedIssuer; key != nil {
		claims = &jwt.RegisteredClaims{}
		_, err := jwt.ParseWithClaims(assertion, claims, func(*jwt.Token) (any, error) { return key, nil }, methods,
			jwt.WithExpirationRequired(), jwt.WithAudience("api://AzureADTokenExchange"))
		if err == nil && claims.Subject == a.options.FederatedSubject {
			return nil
		}
	}
	return errors.New("AADSTS700027: The certificate or the signature of the assertion is not known.")
}

// authorize checks the access token of a request. https://learn.microsoft.com/rest/api/azure/ (section on the request
// header)
func (a *Azure) authorize(header string) *failure {
	token, bearer := strings.CutPrefix(header, "Bearer ")
	if !bearer {
		return fail(http.StatusUnauthorized, "AuthenticationFailed",
			"Authentication failed. The 'Authorization' header is missing.")
	}
	until, known := a.tokens[token]
	switch {
	case !known:
		return fail(http.StatusUnauthorized, "InvalidAuthenticationToken", "The access token is invalid.")
	case time.Now().After(until):
		return fail(http.StatusUnauthorized, "ExpiredAuthenticationToken",
			"The access token expiry UTC time is earlier than current UTC time.")
	}
	return nil
}
