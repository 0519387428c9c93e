
/*
 * Copyright (C) the llm-capture authors
 */

/* simdjson's DOM parse for scan.c: 0 if it takes the body */

#include <simdjson.h>


static simdjson::dom::parser  parser;


extern "C" int
simdjson_parse(const char *p, size_t n)
{
    /* what stands behind the body is padded by the caller */
    return parser.parse(p, n, false).error();
}


extern "C" const char *
simdjson_kernel(void)
{
    static std::string  name;

    name = simdjson::get_active_implementation()->name();

    return name.c_str();
}


extern "C" size_t
simdjson_padding(void)
{
    return simdjson::SIMDJSON_PADDING;
}
