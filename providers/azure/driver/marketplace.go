package driver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"machinist.dev/machinist/providers/azure/machine"
)

// marketplaceAPI is the API version of marketplace agreements.
const marketplaceAPI = "2021-01-01"

// agreement contains the terms of a plan. To accept the terms, the client must send back all their properties.
// https://learn.microsoft.com/rest/api/marketplaceordering/marketplace-agreements
type agreement struct {
	Properties map[string]json.RawMessage `json:"properties"`
}

func (c *clients) acceptTerms(ctx context.Context, plan *machine.Plan) error {
	attempted := "accept the terms of plan " + plan.Name
	var terms agreement
	if err := c.agreement(ctx, http.MethodGet, plan, nil, &terms); err != nil {
		return withField(translate(ctx, err, attempted), "image.plan")
	}
	if terms.Properties == nil {
		terms.Properties = map[string]json.RawMessage{}
	}
	terms.Properties["accepted"] = json.RawMessage("true")
	if err := c.agreement(ctx, http.MethodPut, plan, &terms, nil); err != nil {
		return withField(translate(ctx, err, attempted), "image.plan")
	}
	return nil
}

func (c *clients) agreement(ctx context.Context, method string, plan *machine.Plan, send, receive *agreement) error {
	path := "/subscriptions/" + c.subscription +
		"/providers/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/publishers/" +
		url.PathEscape(plan.Publisher) + "/offers/" + url.PathEscape(plan.Product) + "/plans/" + url.PathEscape(plan.Name) +
		"/agreements/current"
	request, err := runtime.NewRequest(ctx, method, runtime.JoinPaths(c.endpoint, path))
	if err != nil {
		return err
	}
	query := request.Raw().URL.Query()
	query.Set("api-version", marketplaceAPI)
	request.Raw().URL.RawQuery = query.Encode()
	request.Raw().Header.Set("Accept", "application/json")
	if send != nil {
		if err := runtime.MarshalAsJSON(request, send); err != nil {
			return err
		}
	}
	response, err := c.raw.Pipeline().Do(request)
	if err != nil {
		return err
	}
	if !runtime.HasStatusCode(response, http.StatusOK) {
		return runtime.NewResponseError(response)
	}
	if receive == nil {
		return nil
	}
	return runtime.UnmarshalAsJSON(response, receive)
}
