package sdkfake

import (
	"context"
	"encoding/json"
	"fmt"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"

	"machinist.dev/machinist/providers/azure/fakeazure"
)

// These functions return the handlers of most operations. The functions differ in their arguments, such as a resource
// group and a name, or a body. All handlers refuse requests with options.

func reads[T, O any](s *handler, operation string) func(context.Context, string, string, *O) (azfake.Responder[T],
	azfake.ErrorResponder) {
	return func(_ context.Context, group, name string, o *O) (azfake.Responder[T], azfake.ErrorResponder) {
		if o != nil {
			return azfake.Responder[T]{}, notServed(o)
		}
		return respond[T](s, s.call(operation, group, name))
	}
}

func changes[T, B, O any](s *handler, operation string) func(context.Context, string, string, B,
	*O) (azfake.Responder[T], azfake.ErrorResponder) {
	return func(_ context.Context, group, name string, body B, o *O) (azfake.Responder[T], azfake.ErrorResponder) {
		c, err := s.withBody(body, s.call(operation, group, name))
		if o != nil || err != nil {
			return azfake.Responder[T]{}, notServed(o, err)
		}
		return respond[T](s, c)
	}
}

func startsWithoutBody[T, O any](s *handler, operation string) func(context.Context, string, string,
	*O) (azfake.PollerResponder[T], azfake.ErrorResponder) {
	return func(_ context.Context, group, name string, o *O) (azfake.PollerResponder[T], azfake.ErrorResponder) {
		if o != nil {
			return azfake.PollerResponder[T]{}, notServed(o)
		}
		return respondLong[T](s, s.call(operation, group, name))
	}
}

func startsWithBody[T, B, O any](s *handler, operation string) func(context.Context, string, string, B,
	*O) (azfake.PollerResponder[T], azfake.ErrorResponder) {
	return func(_ context.Context, group, name string, body B, o *O) (azfake.PollerResponder[T], azfake.ErrorResponder) {
		c, err := s.withBody(body, s.call(operation, group, name))
		if o != nil || err != nil {
			return azfake.PollerResponder[T]{}, notServed(o, err)
		}
		return respondLong[T](s, c)
	}
}

func lists[T, O any](s *handler, operation string) func(string, *O) azfake.PagerResponder[T] {
	return func(group string, o *O) (answer azfake.PagerResponder[T]) {
		if o != nil {
			answer.AddError(fmt.Errorf("%s: the options %+v are not served", operation, *o))
			return answer
		}
		return pages[T](s, s.call(operation, group))
	}
}

func listsAll[T, O any](s *handler, operation string) func(*O) azfake.PagerResponder[T] {
	inGroup := lists[T, O](s, operation)
	return func(o *O) azfake.PagerResponder[T] { return inGroup("", o) }
}

func (s *handler) withBody(body any, c fakeazure.Call) (fakeazure.Call, error) {
	var err error
	c.Body, err = json.Marshal(body)
	return c, err
}

func notServed(values ...any) (refused azfake.ErrorResponder) {
	refused.SetError(fmt.Errorf("not served: %+v", values))
	return refused
}

func text[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}
