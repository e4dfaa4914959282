// Package router is the tenants' edge of the mesh: it authenticates, validates, tokenises, picks a pair of workers,
// signs the Admission, compares what both halves say they did, and only then lets tokens out.
//
// Data flows in one direction through small packages. Pure ones decide; the others are short shells around them.
//
//	rest      HTTP body -> the fields of the service definition, or a refusal by name       (pure)
//	validate  request message -> what to generate, or a refusal by name                     (pure)
//	prompt    messages -> token ids; a tenant's text never becomes a control token          (pure)
//	choose    what workers say of themselves -> limits, and a route                         (pure)
//	verdict   Admission and both verdicts -> equal, or Corrupt                              (pure)
//	retry     may this failure be tried once more                                           (pure)
//	shape     response message -> OpenAI's exact bytes                                      (pure)
//	apierr    error kind -> OpenAI's error object, its status and its gRPC code             (pure)
//	keys      API key -> tenant, from a watched file
//	fleet     the latest WorkerStatus of every worker
//	receipt   receipts of answers: the key, what is kept, open reports
//	replay    some answers are run again elsewhere, and must be the same
//	flow      one choice: admission, both calls, verdicts, tokens
//	edge      OpenAIService, its gateway, and the HTTP front
//	record    what happened to the last requests
//	meter     metric names
package router
